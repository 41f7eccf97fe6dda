"""What one run leaves outside its output folder, kept together so that it can be removed: a temporary folder with Ray's
session and all sockets, and the shared-memory segments that its processes have opened."""

import os
import re
import shutil
import tempfile
import threading
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
    """The temporary folder of a run, and a watch on the run's processes.

    ``peak_bytes`` is the largest sum of the processes' proportional set sizes (PSS) seen so far.
    """

    def __init__(self, base: Path):
        self.folder = base
        self.peak_bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

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

    def start_watching(self) -> None:
        self._thread.start()

    def remove(self) -> None:
        """Call when the run's processes have ended."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        _remove(self.folder)

    def _watch(self) -> None:
        known: set[str] = set()
        while True:
            new = self._sample() - known
            if new:
                known |= new
                with (self.folder / SEGMENTS).open("a") as file:
                    file.writelines(f"{name}\n" for name in sorted(new))
            if self._stop.wait(SAMPLE_SECONDS):
                return

    def _sample(self) -> set[str]:
        segments: set[str] = set()
        total = 0
        for process in descendants():
            try:
                total += process.memory_full_info().pss
                fds = Path(f"/proc/{process.pid}/fd")
                targets = [fd.readlink() for fd in fds.iterdir()]
            except (psutil.Error, OSError):
                continue  # it has just ended
            names = (target.name for target in targets if target.parent == SHM)
            segments.update(name for name in names if SEGMENT_NAME.fullmatch(name))
        self.peak_bytes = max(self.peak_bytes, total)
        return segments


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
