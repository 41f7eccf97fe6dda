"""What can go wrong, as one exception that a person can act on."""

import errno
import shlex
from enum import IntEnum
from pathlib import Path


class Exit(IntEnum):
    """Exit codes of the command line; the texts are shown by `patchset --help`."""

    OK = 0
    USAGE = 2
    BAD_INPUT = 3
    REFUSED = 4
    CONFLICT = 5
    SOURCE = 6
    BUSY = 7
    SYSTEM = 8
    INTERRUPTED = 130


EXIT_TEXTS = {
    Exit.OK: "done, or there was nothing to do",
    Exit.USAGE: "wrong arguments",
    Exit.BAD_INPUT: "the lock or a patch file is malformed",
    Exit.REFUSED: "a checkout has edits, commits or files that would be lost; nothing was changed",
    Exit.CONFLICT: "a patch does not apply, or the patched files differ from the lock's hash",
    Exit.SOURCE: "a source could not be had, or its content is not what the lock says",
    Exit.BUSY: "another patchset command, or a git, is at work in the same frameworks folder",
    Exit.SYSTEM: "the machine: a full disk, missing rights, git itself",
    Exit.INTERRUPTED: "stopped by Ctrl-C (or SIGTERM, SIGHUP)",
}


class PatchsetError(Exception):
    """A foreseeable fault: what happened, what to do next, and the exit code it ends in."""

    def __init__(self, what: str, next_step: str, code: Exit) -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step
        self.code = code


def quoted(path: Path) -> str:
    """A path as a suggested command needs it."""
    return shlex.quote(str(path))


SHOWN = 10  # names in one message


def some(names: list[str], joint: str = " ") -> str:
    """The first of many names, and how many there are."""
    more = [f"and {len(names) - SHOWN} more ({len(names)} in all)"] if len(names) > SHOWN else []
    return joint.join([*names[:SHOWN], *more])


def system_hint(error: OSError) -> str:
    """What to do about a fault of the machine."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space there"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "mend the rights there, or choose another place"
    if error.errno in (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.ELOOP):
        return "see what lies there, and move away what does not belong there"
    return f"mend what the system names ({errno.errorcode.get(error.errno, 'no code')}), then run the command again"


def refuse_all(faults: list[PatchsetError]) -> None:
    """Raise several faults as one, with the code of the first; none if there are none."""
    if faults:
        next_steps = dict.fromkeys(fault.next_step for fault in faults)
        raise PatchsetError("\n".join(fault.what for fault in faults), "; ".join(next_steps), faults[0].code)


class Unavailable(PatchsetError):
    """A source that cannot be had now; the next one is tried."""

    def __init__(self, what: str) -> None:
        super().__init__(what, "check the network, a proxy or PIP_INDEX_URL", Exit.SOURCE)


class Cancelled(Exception):
    """Raised inside a worker thread once the command was told to stop."""
