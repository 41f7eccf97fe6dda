"""What one run leaves outside its output folder, kept together so that it can be removed: a temporary folder with Ray's
session and all sockets, and the shared-memory segments that its processes have opened."""

import os
import re
import shutil
import tempfile
import time
from pathlib import Path

import psutil

from qwen3_rl.errors import UserError
from qwen3_rl.launch.processes import descendants

PREFIX = "qwen3-rl-"
SEGMENTS = "shared-memory"
SHM = Path("/dev/shm")
# Named by Python's multiprocessing, and by veRL's weight transfer.
SEGMENT_NAME = re.compile(r"(psm_|verl_weights_)\w+")
# A Unix socket's path has 107 bytes; Ray needs this many below its folder.
LONGEST_BASE = 107 - len("/ray/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store")
SAMPLE_SECONDS = 3.0


class Scratch:
    """The temporary folder of a run, and what samples of the run's processes have shown.

    ``peak_bytes`` is the largest sum of the processes' proportional set sizes (PSS) seen so far.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.peak_bytes = 0
        self._segments: set[str] = set()
        self._next_sample = 0.0

    @classmethod
    def make(cls) -> "Scratch":
        """Raises UserError where the temporary folder's path is too long for Ray's sockets."""
        parent = Path(tempfile.gettempdir())
        remove_stale(parent)
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))
        if len(bytes(folder)) > LONGEST_BASE:
            folder.rmdir()
            raise UserError(
                f"the temporary folder {parent} has too long a path: Ray's Unix sockets in it would exceed 107 bytes",
                "set TMPDIR to a shorter one, for example TMPDIR=/tmp",
            )
        return cls(folder)

    def sample(self) -> None:
        """Look at the run's processes, at most every SAMPLE_SECONDS.

        Called from the launcher's loop, not from a thread: Linux tells a child of its parent's death once for each
        thread that the parent had, and Ray's head hangs when it is told twice.
        """
        if time.monotonic() < self._next_sample:
            return
        segments, total = _look_at_processes()
        self.peak_bytes = max(self.peak_bytes, total)
        with (self.folder / SEGMENTS).open("a") as file:
            file.writelines(f"{name}\n" for name in sorted(segments - self._segments))
        self._segments |= segments
        self._next_sample = time.monotonic() + SAMPLE_SECONDS

    def remove(self) -> None:
        """Call when the run's processes have ended."""
        _remove(self.folder)


def _look_at_processes() -> tuple[set[str], int]:
    """The shared-memory segments that our descendants hold open, and their memory in bytes (PSS)."""
    segments: set[str] = set()
    total = 0
    for process in descendants():
        try:
            total += process.memory_full_info().pss
            targets = [fd.readlink() for fd in Path(f"/proc/{process.pid}/fd").iterdir()]
        except (psutil.Error, OSError):
            continue  # it has just ended
        names = (target.name for target in targets if target.parent == SHM)
        segments.update(name for name in names if SEGMENT_NAME.fullmatch(name))
    return segments, total


def _remove(folder: Path) -> None:
    listed = folder / SEGMENTS
    if listed.is_file():
        for name in listed.read_text().split():
            if SEGMENT_NAME.fullmatch(name):
                (SHM / name).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def remove_stale(parent: Path) -> None:
    """Remove what launchers of this user left that were killed before they could."""
    for folder in parent.glob(f"{PREFIX}[0-9]*-*"):
        pid = int(re.match(rf"{PREFIX}(\d+)-", folder.name)[1])
        if not psutil.pid_exists(pid) and folder.is_dir() and folder.stat().st_uid == os.getuid():
            _remove(folder)
