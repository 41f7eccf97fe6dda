"""Moving checkouts from one commit to another: all or none, whenever the process is killed."""

import json
import os
import shlex
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from .errors import Exit, PatchsetError, quoted, some
from .gitrepo import BASE, BRANCH, Checkout, Heads, is_absent, open_checkout
from .lock import Commit, Name
from .project import Project
from .selection import record, recorded

# Free space to start a switch with. It needs little, but git reports a full disk in many ways, some in mid-file.
RESERVE = 16 * 2**20


@dataclass(frozen=True)
class Move:
    """One checkout's way from commit `old` to commit `new`."""

    name: Name
    old: Commit
    new: Commit


def journal_path(project: Project) -> Path:
    return project.frameworks / ".patchset-journal.json"


@dataclass(frozen=True)
class Journal:
    """What a switch set out to do, and the selection of features that held before it."""

    moves: list[Move]
    features: list[str] | None


_JOURNAL = TypeAdapter(Journal)


def read_journal(project: Project) -> Journal:
    """The journal of a command that was killed while it switched; no moves if there was none.

    Raises PatchsetError (REFUSED) for a damaged one.
    """
    path = journal_path(project)
    try:
        found = _JOURNAL.validate_json(path.read_bytes(), strict=True)
        if not found.moves:
            raise ValueError
        return found
    except FileNotFoundError:
        return Journal([], None)
    except ValueError as error:
        folders = " ".join(quoted(project.path(name)) for name in project.lock.frameworks)
        raise PatchsetError(
            f"{path} is damaged: a command was killed while it changed the checkouts, and what it did is not known",
            "in each checkout keep what is yours (git diff > my.diff), then: "
            f"for c in {folders}; do [ ! -e $c/.git ] || git -C $c checkout --detach -f patchset/base; done && rm "
            + quoted(path),
            Exit.REFUSED,
        ) from error


def check_movable(checkout: Checkout, heads: Heads, new: str) -> list[str]:
    """Name everything in a checkout that a move to `new` would lose; empty if it may move."""
    where = checkout.path
    if state := checkout.busy_state():
        return [f"{where}: a git operation is under way ({state}); finish or abort it"]
    faults = [f"{where}/{path} is edited" for path in checkout.dirty()] + checkout.hidden_faults()
    if heads.head not in heads.ours:
        faults.append(f"{where} stands at commit {heads.head[:12]}, which is not patchset's")
    if heads.branch and heads.branch not in heads.ours:
        faults.append(f"{where}: branch patched has commits that are not patchset's")
    if faults:
        return faults
    # On the disk, not in the index: git itself would overwrite an ignored file.
    added = [path for path, how in checkout.changed(heads.head, new).items() if how == "A"]
    return [f"{where}/{path} is untracked and a patch creates it" for path in added if _occupied(where, path)]


def _occupied(where: Path, path: str) -> bool:
    return os.path.lexists(where / path) or _under_a_file(where, path)


def _under_a_file(where: Path, path: str) -> bool:
    """True if a file or a link stands where `path` needs a folder."""
    folders = [where / folder for folder in Path(path).parents][:-1]
    return any(folder.is_symlink() or folder.is_file() for folder in folders)


def switch(project: Project, moves: list[Move], features: list[str] | None) -> None:
    """Move all checkouts, which `check_movable` has passed, and record `features`. A failure in one puts all back.

    Raises PatchsetError (SYSTEM) where git fails, for instance at a full disk.
    """
    if not moves:
        record(project, features)
        return
    free = shutil.disk_usage(project.frameworks).free
    if free < RESERVE:
        raise PatchsetError(
            f"only {free / 2**20:.1f} MiB are free on the disk of {project.frameworks}", "free some space", Exit.SYSTEM
        )
    _refuse_locked(project, moves)
    with _undisturbed():
        _write_journal(project, Journal(moves, recorded(project)))
        try:
            with ThreadPoolExecutor(len(moves)) as pool:
                for _ in pool.map(lambda move: _checkout(open_checkout(project.path(move.name)), move.new), moves):
                    pass  # the first failure is raised here, once all have ended
            record(project, features)
        except (PatchsetError, OSError):
            mend(project, locks_are_ours=False)
            raise
        journal_path(project).unlink()


def _lock_files(checkout: Checkout) -> list[Path]:
    """The files by which a git keeps others off what a switch changes."""
    return [checkout.path / ".git" / f"{each}.lock" for each in ("index", "HEAD", BRANCH, "packed-refs")]


def _refuse_locked(project: Project, moves: list[Move]) -> None:
    """Raise PatchsetError (BUSY) while another git is at work in a checkout, or has died there."""
    checkouts = [Checkout(project.path(move.name)) for move in moves]
    found = [lock for checkout in checkouts for lock in _lock_files(checkout) if os.path.lexists(lock)]
    if found:
        raise PatchsetError(
            "nothing was changed, because another git is at work there, or has died:\n"
            + "\n".join(f"  {lock}" for lock in found),
            "wait for it to end; if none is running, remove the file: rm " + shlex.join(map(str, found)),
            Exit.BUSY,
        )


def mend(project: Project, locks_are_ours: bool = True) -> list[str]:
    """Put checkouts that a killed command left between two states back to the old one; returns their names.

    `locks_are_ours`: git's lock files there are the killed command's. (A git that fails removes its own.)
    Raises PatchsetError (REFUSED) naming the file if somebody has edited one of them since.
    """
    journal = read_journal(project)
    with _undisturbed():
        for move in journal.moves:
            if not is_absent(project.path(move.name)):
                _put_back(open_checkout(project.path(move.name)), move, locks_are_ours)
        if journal.moves:
            record(project, journal.features)
            journal_path(project).unlink()
    return [move.name for move in journal.moves]


def _checkout(checkout: Checkout, commit: str) -> None:
    heads = checkout.heads()
    if commit == heads.base:
        checkout.run("checkout", "--quiet", "--detach", BASE)
        if heads.branch:
            checkout.run("update-ref", "-d", BRANCH)
    else:
        checkout.run("checkout", "--quiet", "-B", "patched", commit)


def _put_back(checkout: Checkout, move: Move, locks_are_ours: bool) -> None:
    heads = checkout.heads()
    if not {move.old, move.new} <= heads.ours:
        return  # removed and fetched again since
    changed = checkout.changed(move.old, move.new)
    made = any(how == "A" and os.path.lexists(checkout.path / path) for path, how in changed.items())
    if not locks_are_ours and heads.head == move.old and not made and not changed.keys() & {*checkout.dirty()}:
        return  # its git failed before it changed anything, perhaps because of another git's lock
    contents = {path: (checkout.blob(move.old, path), checkout.blob(move.new, path)) for path in changed}
    checkout.close()
    edited = [path for path, sides in contents.items() if not _is_between(checkout.path, path, sides)]
    if edited:
        raise PatchsetError(
            f"{checkout.name}: a command was killed while it changed the checkout, and since then somebody has edited "
            + some([str(checkout.path / path) for path in edited], ", "),
            "move your copy of these files away, then run the command again",
            Exit.REFUSED,
        )
    if heads.head not in (move.old, move.new):
        raise PatchsetError(
            f"{checkout.name}: a command was killed while it changed the checkout, and HEAD was moved since",
            f"keep your commits (git -C {quoted(checkout.path)} branch mine), "
            f"then: git -C {quoted(checkout.path)} checkout {move.old}",
            Exit.REFUSED,
        )
    if locks_are_ours:  # their owner is dead: this process holds the lock that it held
        for lock in _lock_files(checkout):
            lock.unlink(missing_ok=True)
    listed = "\0".join(contents).encode("utf-8", "surrogateescape")
    # Only these paths: elsewhere the index and the files may carry a user's edits, which the next check will name.
    checkout.run(
        "--literal-pathspecs",
        "reset",
        "--quiet",
        move.old,
        "--pathspec-from-file=-",
        "--pathspec-file-nul",
        data=listed,
    )
    for path, (old, _) in contents.items():
        if old is None:
            _remove(checkout.path, path)
    kept = b"\0".join(path.encode("utf-8", "surrogateescape") for path, (old, _) in contents.items() if old is not None)
    # -f: over what is there, which was found to be git's own; -u: with file times, so that status need not read them.
    checkout.run("checkout-index", "-f", "-u", "-z", "--stdin", data=kept)
    if move.old == heads.base:
        checkout.run("update-ref", "--no-deref", "HEAD", move.old)
        if heads.branch in heads.ours:
            checkout.run("update-ref", "-d", BRANCH)
    else:
        checkout.run("update-ref", BRANCH, move.old)
        checkout.run("symbolic-ref", "HEAD", BRANCH)


def _is_between(where: Path, path: str, sides: tuple[bytes | None, bytes | None]) -> bool:
    """True if the file is one side, absent, or a half-written copy of a side: nothing of a user's."""
    place = where / path
    if _under_a_file(where, path):
        return False
    if place.is_symlink():
        found = str(place.readlink()).encode()
    elif place.is_file():
        found = place.read_bytes()
    else:
        return not place.exists()
    return any(side is not None and side.startswith(found) for side in sides)


def _remove(where: Path, path: str) -> None:
    place = where / path
    place.unlink(missing_ok=True)
    for parent in place.parents:
        if parent == where or (parent.exists() and any(parent.iterdir())):
            return
        if parent.exists():
            parent.rmdir()


def _write_journal(project: Project, journal: Journal) -> None:
    path = journal_path(project)
    draft = path.with_suffix(".new")
    with draft.open("w") as file:
        json.dump(asdict(journal), file)
        file.flush()
        os.fsync(file.fileno())  # the rename must not reach the disk before the content
    draft.replace(path)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold Ctrl-C, SIGTERM and SIGHUP back; this process and the gits that it starts see them at the end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
