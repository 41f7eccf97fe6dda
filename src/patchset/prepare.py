"""From a base commit and a series of patches to the commit that holds them all; no work tree is touched."""

import hashlib
import os
import re
from collections.abc import Callable, Iterator

from unidiff import Hunk

from .errors import Exit, PatchsetError, quoted
from .gitrepo import STACKS, Checkout, GitError, Heads
from .patchfile import Patch


class Conflict(PatchsetError):
    """A patch that does not fit."""

    def __init__(self, patch: Patch, what: str, next_step: str) -> None:
        super().__init__(what, next_step, Exit.CONFLICT)
        self.patch = patch


BUILDING = "refs/patchset/building"  # never made
COMMITTER = {"GIT_COMMITTER_NAME": "patchset", "GIT_COMMITTER_EMAIL": "patchset@localhost"}


def stack_digest(base: str, patches: list[Patch]) -> str:
    """Names a base with an exact series on it."""
    digest = hashlib.sha256(base.encode())
    for patch in patches:
        digest.update(f"\0{patch.name}\0{len(patch.data)}\0".encode() + patch.data)
    return digest.hexdigest()[:16]


def prepare_tip(checkout: Checkout, heads: Heads, patches: list[Patch]) -> str:
    """Return the commit with all patches on the base, made at the first call and found by its ref afterwards.

    The commits hold nothing of this machine or this moment: the same base and patches give the same hash anywhere.
    Raises PatchsetError (CONFLICT) naming patch, file and hunk where one does not apply.
    """
    if not patches:
        return heads.base
    digest = stack_digest(heads.base, patches)
    if digest in heads.tips:
        return heads.tips[digest]
    tip = build_tip(checkout, heads.base, patches)
    checkout.run("update-ref", STACKS + digest, tip)
    return tip


def build_tip(checkout: Checkout, base: str, patches: list[Patch]) -> str:
    """As prepare_tip, but always from the patches themselves."""
    if not patches:
        return base
    stream = []
    # Files and index are left alone until all frameworks are prepared.
    with checkout.own_index(base, touched(patches)) as own:
        before = checkout.entries(own)
        for group in _independent(patches):
            apply_patches(checkout, own, group)
            after = checkout.entries(own)
            for patch in group:
                changes = _changes(before, after, patch.files)
                stream += [_commit(patch), b"" if stream else f"from {base}\n".encode(), changes]
            before = after
    # All commits in one process. It says the last one's hash; the branch that it wants is given up before it is made.
    stream.append(f"get-mark :1\nreset {BUILDING}\n\n".encode())
    # unpackLimit: no pack, but objects as other commands make them. permissive: any time zone that a mail may name.
    # ignorecase: as set for a file system, it would take `A` for upstream's `a`.
    settings = ("-c", "fastimport.unpackLimit=1000000", "-c", "core.ignorecase=false")
    options = ("--quiet", "--date-format=raw-permissive")
    return checkout.run(*settings, "fast-import", *options, data=b"".join(stream))


def _independent(patches: list[Patch]) -> Iterator[list[Patch]]:
    """Consecutive patches of which no two touch the same file, as many as there are: git takes them all at once."""
    group, files = [], set()
    for patch in patches:
        if not files.isdisjoint(patch.files):
            yield group
            group, files = [], set()
        group.append(patch)
        files.update(patch.files)
    yield group


def apply_patches(checkout: Checkout, own: dict[str, str], patches: list[Patch]) -> None:
    """Apply patches that touch different files to the index `own`. Raises Conflict."""
    try:
        # --cached: the index only. git allows other line numbers, but every context line must be there.
        checkout.run("apply", "--cached", "-", data=b"\n".join(patch.data for patch in patches), env=own)
    except GitError as error:
        if len(patches) == 1:
            raise _conflict(checkout, own, patches[0], error) from error
        for patch in patches:  # nothing was changed; which one is it?
            apply_patches(checkout, own, [patch])


def _commit(patch: Patch) -> bytes:
    """A commit's head, as `git fast-import` reads it."""
    message = patch.message.encode("utf-8", "surrogateescape")
    committer, address = COMMITTER.values()
    head = (
        f"commit {BUILDING}\nmark :1\n"
        f"author {patch.author} <{patch.email}> {patch.date}\n"
        f"committer {committer} <{address}> {patch.date}\ndata {len(message)}\n"
    )
    return head.encode("utf-8", "surrogateescape") + message + b"\n"


def _changes(before: dict[str, str], after: dict[str, str], files: list[str]) -> bytes:
    """From one index to the next in these files, likewise: what goes, then (it may need the place) what comes."""
    gone = [f"D {path}\n" for path in files if path in before and path not in after]
    new = [f"M {after[path]} {path}\n" for path in files if path in after and before.get(path) != after[path]]
    return os.fsencode("".join(gone + new))


def _conflict(checkout: Checkout, own: dict[str, str], patch: Patch, error: GitError) -> PatchsetError:
    failed = re.search(r"^error: patch failed: (.+):(\d+)$", error.stderr, re.M)
    if error.disk_full or not re.search(r"^error: ", error.stderr, re.M):
        return error
    detail = error.stderr.splitlines()[0].removeprefix("error: ")
    if failed:
        detail = _explain(checkout.staged(own, failed[1]), patch, failed[1], int(failed[2]))
    return Conflict(
        patch,
        f"{checkout.name}: {patch.shown} does not apply: {detail}",
        f"compare with upstream's file (git -C {quoted(checkout.path)} log -p patchset/base -- FILE) "
        "and correct the patch",
    )


def _explain(content: bytes | None, patch: Patch, path: str, line: int) -> str:
    hunks = [hunk for file in patch.diff if file.path == path for hunk in file]
    number, hunk = next(((i, hunk) for i, hunk in enumerate(hunks, 1) if hunk.source_start == line), (0, None))
    if not hunk or content is None:
        return f"{path}, line {line}"
    return f"{path}, hunk {number} of {len(hunks)} (line {line}): " + _first_difference(content, hunk)


def _first_difference(content: bytes, hunk: Hunk) -> str:
    there = content.decode("utf-8", "surrogateescape").splitlines()
    wanted = [line[1:].rstrip("\n") for line in hunk.source]

    at, _ = best_place(there, wanted, hunk.source_start)
    for have, want in zip([*there[at:], *[None] * len(wanted)], wanted, strict=False):
        if have != want:
            return f"expected {want!r}, found {'the end of the file' if have is None else repr(have)}"
    return "its lines are there, but not where a hunk at a file's edge must be"


def best_place(there: list[str], wanted: list[str], line: int) -> tuple[int, int]:
    """Where a hunk for `line` belongs, the place with most of its lines or the nearest of several; and how many."""

    def matches(at: int) -> int:
        return sum(have == want for have, want in zip(there[at : at + len(wanted)], wanted, strict=False))

    at = max(range(len(there) + 1), key=lambda at: (matches(at), -abs(at - max(line - 1, 0))))
    return at, matches(at)


def touched(patches: list[Patch]) -> list[str]:
    """Every path that a series touches, sorted."""
    return sorted({path for patch in patches for path in patch.files})


def content_hash(checkout: Checkout, commit: str, paths: list[str]) -> str:
    """The lock's patched_sha256: over `PATH NUL SHA256-OF-CONTENT LF` of all paths; "-" stands for a missing file."""
    try:
        return hash_of(paths, lambda path: checkout.blob(commit, path))
    finally:
        checkout.close()


def hash_of(paths: list[str], read: Callable[[str], bytes | None]) -> str:
    """The same over contents from elsewhere."""
    digest = hashlib.sha256()
    for path in paths:
        content = read(path)
        line = f"{path}\0{'-' if content is None else hashlib.sha256(content).hexdigest()}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
