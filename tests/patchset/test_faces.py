"""The shell faces: one call, its arguments and its exit code passed on; an environment that mends itself."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FACES = {"download_frameworks_source_code.sh": "fetch", "apply_all_patches.sh": "apply"}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A checkout (its path has a blank) whose Python, pip and patchset are stand-ins that write down their calls."""
    root = tmp_path / "a clone"
    (root / "scripts").mkdir(parents=True)
    for name in [*FACES, "scripts/venv.sh", "pyproject.toml"]:
        shutil.copy(ROOT / name, root / name)
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/bash
echo "$*" >> "{tmp_path}/calls"
[ "$2" = venv ] && {{ mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; }}
if [ "$3" = install ]; then
    [ -e "{tmp_path}/no-network" ] && exit 1
    face="${{0%/*}}/patchset"
    printf '#!/bin/bash\\n[ "$1" = --help ] && exit 0; echo "$*"; exit 4\\n' > "$face"; chmod +x "$face"
fi
exit 0
"""
    )
    python.chmod(0o755)
    return root


def call(root: Path, face: str, *args: str, **env: str) -> subprocess.CompletedProcess:
    env = {**os.environ, "PYTHON": str(root.parent / "python"), **env}
    return subprocess.run([root / face, *args], env=env, capture_output=True, text=True, check=False)


def calls(root: Path) -> list[str]:
    file = root.parent / "calls"
    lines = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return [line for line in lines if not line.startswith("-c ")]  # but for the questions of what is there


@pytest.mark.parametrize(("face", "command"), FACES.items())
def test_arguments_and_exit_code_are_passed_on(clone: Path, face: str, command: str) -> None:
    done = call(clone, face, "--only", "x y")
    assert (done.stdout, done.returncode) == (f"--root {clone} {command} --only x y\n", 4)
    assert [line.split()[1] for line in calls(clone)] == ["venv", "pip"]
    call(clone, face)
    assert calls(clone) == []  # ready at once


def test_an_interrupted_environment_is_mended(clone: Path) -> None:
    (clone.parent / "no-network").touch()
    done = call(clone, "apply_all_patches.sh")
    assert done.returncode == 8 and done.stdout == "" and "error: pip could not install" in done.stderr
    (clone.parent / "no-network").unlink()
    calls(clone)
    assert call(clone, "apply_all_patches.sh").returncode == 4
    assert [line.split()[2] for line in calls(clone)] == ["install"]


def test_a_changed_project_is_installed_again(clone: Path) -> None:
    call(clone, "apply_all_patches.sh")
    calls(clone)
    with (clone / "pyproject.toml").open("a") as file:
        file.write("# more\n")
    call(clone, "apply_all_patches.sh")
    assert [line.split()[2] for line in calls(clone)] == ["install"]
    marker = (clone / ".venv/.made-for").read_text()
    assert hashlib.sha256((clone / "pyproject.toml").read_bytes()).hexdigest() in marker


def test_a_missing_python_is_named(clone: Path) -> None:
    done = call(clone, "apply_all_patches.sh", PYTHON="python3.11-that-is-not-there")
    assert done.returncode == 8
    assert "error: python3.11-that-is-not-there is not there" in done.stderr and "next: install" in done.stderr
