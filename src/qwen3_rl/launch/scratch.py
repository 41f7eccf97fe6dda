"""What one run leaves outside its output folder, kept together so that it can be removed: a temporary folder with Ray's
session and all sockets, and the shared-memory segments that its processes have opened."""

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from qwen3_rl.errors import UserError
from qwen3_rl.launch.processes import descendants, reap_orphans

PREFIX = "qwen3-rl-"
SEGMENTS = "shared-memory"
LOCK = "launcher.lock"
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

    def __init__(self, folder: Path, lock: int):
        self.folder = folder
        self._lock = lock  # held as long as this process lives
        self.peak_bytes = 0
        self._segments: set[str] = set()
        self._next_sample = 0.0

    @classmethod
    def make(cls, name: str | None = None) -> "Scratch":
        """name: the folder's, with PREFIX before it, where all machines of a cluster must use the same.

        Raises UserError where the temporary folder's path is too long for Ray's sockets, or taken.
        """
        parent = Path(tempfile.gettempdir())
        remove_stale(parent)
        if name is None:
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        else:
            folder = parent / f"{PREFIX}{name}"
            try:
                folder.mkdir(0o700)
            except FileExistsError:
                raise UserError(
                    f"{folder} exists, and is not this user's to remove", "set TMPDIR, on every node"
                ) from None
        if len(bytes(folder)) > LONGEST_BASE:
            folder.rmdir()
            raise UserError(
                f"the temporary folder {parent} has too long a path: Ray's Unix sockets in it would exceed 107 bytes",
                "set TMPDIR to a shorter one, for example TMPDIR=/tmp",
            )
        return cls(folder, _try_lock(folder / LOCK, os.O_CREAT))

    def sample(self) -> None:
        """Look at the run's processes, at most every SAMPLE_SECONDS.

        Called from the launcher's loop, not from a thread: Linux tells a child of its parent's death once for each
        thread that the parent had, and Ray's head hangs when it is told twice.
        """
        if time.monotonic() < self._next_sample:
            return
        reap_orphans()
        segments, total = _look_at_processes()
        self.peak_bytes = max(self.peak_bytes, total)
        with (self.folder / SEGMENTS).open("a") as file:
            file.writelines(f"{name}\n" for name in sorted(segments - self._segments))
        self._segments |= segments
        self._next_sample = time.monotonic() + SAMPLE_SECONDS

    def remove(self) -> None:
        """Call when the run's processes have ended."""
        _remove(self.folder)
        os.close(self._lock)


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
    """Remove what launchers of this user left that were killed before they could: their lock is there, but free."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == os.getuid() and (lock := _try_lock(folder / LOCK)) is not None:
                _remove(folder)
                os.close(lock)


def left_behind() -> list[psutil.Process]:
    """This user's processes of runs whose launcher is gone: they carry the run's environment, its lock is free."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            env = process.environ()
            folder = Path(env.get("TMPDIR", ""))
            mine = process.uids().real == os.getuid() and process.status() != psutil.STATUS_ZOMBIE
            if mine and "RUN_FOLDER" in env and folder.name.startswith(PREFIX) and not _is_held(folder / LOCK):
                found.append(process)
    return found


def _is_held(lock: Path) -> bool:
    try:
        descriptor = _try_lock(lock)
    except FileNotFoundError:
        return False
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None


def _try_lock(path: Path, flags: int = 0) -> int | None:
    """The descriptor of ``path``, locked; None while another process holds the lock. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def only_launcher() -> Iterator[None]:
    """Keep a second launcher of this user off the machine. Raises UserError naming the first.

    Two would each offer all NPUs to their job. Looking for a running Ray does not tell, since it comes up later.
    """
    path = Path("/tmp") / f"{PREFIX}{os.getuid()}.lock"  # not in TMPDIR, which may differ
    lock = _try_lock(path, os.O_CREAT)
    if lock is None:
        raise UserError(
            f"another ray_start_npu.sh of yours is at work on this machine (process {path.read_text() or 'unknown'})",
            "wait for it, or end it: it stops its own Ray",
        )
    os.ftruncate(lock, 0)
    os.write(lock, b"%d" % os.getpid())
    try:
        yield
    finally:
        os.close(lock)
