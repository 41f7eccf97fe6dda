"""Recorded machines, whole or changed, and what the doctor says of them."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from patchset.project import find_project
from qwen3_rl.doctor.cli import examine
from qwen3_rl.doctor.findings import Case, Finding, Level
from qwen3_rl.doctor.machine import Recording
from qwen3_rl.doctor.settings import read_overrides

MACHINES = Path(__file__).parent / "machines"
PLATFORM = find_project(None).lock.platform
NAMES = sorted(folder.name for folder in MACHINES.iterdir() if folder.is_dir())


@dataclass(frozen=True)
class Change:
    """What differs from the healthy machine. None removes a file, a variable or a package."""

    files: dict[str, str | None] = field(default_factory=dict)
    env: dict[str, str | None] = field(default_factory=dict)
    packages: dict[str, str | None] = field(default_factory=dict)
    train_script: str = ""
    master: str | None = None


def machine(name: str, folder: Path, change: Change = Change()) -> Path:
    """A recorded machine in ``folder``: healthy, what ``name`` changes in it, then ``change``."""
    for each in ("healthy", name):
        shutil.copytree(MACHINES / each, folder, dirs_exist_ok=True)
    absent = folder / "absent"
    for path in absent.read_text().split() if absent.exists() else []:
        (folder / path).unlink()
    for path, text in change.files.items():
        if text is None:
            (folder / path).unlink()
        else:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
    _set(folder / "environment", "=", change.env)
    _set(folder / "packages", "==", change.packages)
    return folder


def _set(file: Path, sign: str, change: dict[str, str | None]) -> None:
    pairs = dict(line.split(sign, 1) for line in file.read_text().splitlines()) | change
    file.write_text("".join(f"{key}{sign}{value}\n" for key, value in pairs.items() if value is not None))


def findings(folder: Path, change: Change = Change()) -> list[Finding]:
    """All findings on a recorded machine."""
    overrides = read_overrides(change.train_script)
    return list(examine(Case(Recording(folder), PLATFORM, overrides, change.master), None))


def bad(found: list[Finding]) -> dict[str, Finding]:
    """The warnings and faults by their check."""
    return {finding.check: finding for finding in found if finding.level >= Level.WARNING}


def doctor(*arguments: str, **env: str) -> subprocess.CompletedProcess:
    """The command itself."""
    return subprocess.run(
        [sys.executable, "-m", "qwen3_rl.cli", "doctor", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | env,
    )
