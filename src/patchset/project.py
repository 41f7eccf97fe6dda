"""Where things lie: the repository, its lock and patches, the frameworks folder, and the lock that commands take."""

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .errors import Exit, PatchsetError
from .gitrepo import INHERITED, Checkout, is_absent, open_checkout
from .lock import Lock, load_lock
from .patchfile import Patch, read_series

LOCK = "patches/stack.toml"
ORPHAN_WAIT = 10.0  # how long a killed command's last git processes may take to end


@dataclass(frozen=True)
class Project:
    """The repository at `root` and the checkouts in `frameworks`."""

    root: Path
    frameworks: Path
    planned: Lock | None = None  # in place of the repository's own

    @cached_property
    def lock(self) -> Lock:
        return self.planned or load_lock(self.root / LOCK, LOCK)

    @cached_property
    def series(self) -> dict[str, list[Patch]]:
        """The patches of every framework, in the lock's order. Raises PatchsetError (BAD_INPUT)."""
        for folder in sorted((self.root / "patches").iterdir()):
            if folder.is_dir() and folder.name not in self.lock.frameworks:
                known = ", ".join(self.lock.frameworks)
                raise PatchsetError(
                    f"patches/{folder.name}: {LOCK} has no framework of that name (it has {known})",
                    "rename the folder or add the framework to the lock",
                    Exit.BAD_INPUT,
                )
        return {
            name: read_series(self.root / "patches" / name, f"patches/{name}", framework.paths)
            for name, framework in self.lock.frameworks.items()
        }

    def check_names(self, names: list[str]) -> None:
        """Raises PatchsetError (USAGE) for a name that is no framework of the lock."""
        for name in names:
            if name not in self.lock.frameworks:
                raise PatchsetError(
                    f"there is no framework {name!r}", f"take one of: {', '.join(self.lock.frameworks)}", Exit.USAGE
                )

    def path(self, name: str) -> Path:
        return self.frameworks / name

    def checkouts(self) -> tuple[dict[str, Checkout], list[str]]:
        """The checkouts that are there, and the names of those that are not.

        Raises PatchsetError (REFUSED) for a folder that is not ours.
        """
        absent = [name for name in self.lock.frameworks if is_absent(self.path(name))]
        return {name: open_checkout(self.path(name)) for name in self.lock.frameworks if name not in absent}, absent


def find_project(root: str | None) -> Project:
    """Find the repository: --root, PATCHSET_ROOT, or where this package is installed from.

    Raises PatchsetError (USAGE) where there is no lock.
    """
    path = Path(root or os.environ.get("PATCHSET_ROOT") or Path(__file__).parents[2]).resolve()
    if not (path / LOCK).is_file():
        raise PatchsetError(
            f"{path / LOCK} is not there", "name the repository's folder with --root or PATCHSET_ROOT", Exit.USAGE
        )
    frameworks = path / (os.environ.get("FRAMEWORKS_DIR") or "frameworks")
    if os.path.lexists(frameworks) and not frameworks.is_dir():
        raise PatchsetError(
            f"{frameworks}, where the checkouts should be, is no folder, or a link to none",
            "move it away, or name a folder in FRAMEWORKS_DIR",
            Exit.USAGE,
        )
    return Project(path, frameworks)


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace a file in one step."""
    draft = path.with_name(f".{path.name}.new")
    draft.write_bytes(content.encode() if isinstance(content, str) else content)
    draft.replace(path)


def _lock_file(project: Project) -> Path:
    return project.frameworks / ".patchset.lock"


@contextmanager
def exclusive(project: Project) -> Iterator[None]:
    """Keep every other patchset command off the frameworks folder.

    Raises PatchsetError (BUSY) naming the process that holds it.
    """
    project.frameworks.mkdir(parents=True, exist_ok=True)
    with _lock_file(project).open("a+", errors="replace") as file:
        deadline = time.monotonic() + ORPHAN_WAIT
        while not _try_flock(file.fileno()):
            pid = _read_pid(file)
            # The gits that a killed command leaves behind still hold the lock; they end soon.
            if _alive(pid) or time.monotonic() > deadline:
                raise PatchsetError(
                    f"another patchset command (process {pid or 'unknown'}) is at work in {project.frameworks}",
                    "wait for it to end, then try again",
                    Exit.BUSY,
                )
            time.sleep(0.05)
        if _read_pid(file):
            _remove_leftovers(project)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        INHERITED.add(file.fileno())
        try:
            yield
        finally:
            INHERITED.discard(file.fileno())
            file.truncate(0)


def _remove_leftovers(project: Project) -> None:
    """Remove what git processes of a killed command left beside the refs that only patchset writes."""
    for git_dir in project.frameworks.glob("*/.git"):
        for left in (*git_dir.glob("refs/patchset/**/*.lock"), *git_dir.glob("patchset-index-*")):
            left.unlink(missing_ok=True)


def holder(project: Project) -> int | None:
    """The process that is at work in the frameworks folder, if any."""
    try:
        with _lock_file(project).open(errors="replace") as file:
            return None if _try_flock(file.fileno(), fcntl.LOCK_SH) else _read_pid(file)
    except FileNotFoundError:
        return None


def _try_flock(fd: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_pid(file) -> int:
    file.seek(0)
    text = file.read(20)
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else 0


def _alive(pid: int) -> bool:
    if not pid:  # the holder is just starting or ending
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
