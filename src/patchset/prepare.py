"""From a base commit and a series of patches to the commit that holds them all; no work tree is touched."""

import hashlib
import re
from collections.abc import Callable

from unidiff import Hunk

from .errors import Exit, PatchsetError, quoted
from .gitrepo import STACKS, Checkout, GitError, Heads
from .patchfile import Patch


class Conflict(PatchsetError):
    """A patch that does not fit."""

    def __init__(self, patch: Patch, what: str, next_step: str) -> None:
        super().__init__(what, next_step, Exit.CONFLICT)
        self.patch = patch


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
    tip = base
    # Files and index are left alone until all frameworks are prepared.
    with checkout.own_index(base) as own:
        for patch in patches:
            tip = commit_patch(checkout, own, tip, patch)
    return tip


def commit_patch(checkout: Checkout, own: dict[str, str], parent: str, patch: Patch) -> str:
    """Apply one patch to the index `own`, which holds `parent`; returns the commit. Raises Conflict."""
    try:
        # --cached: the index only. git allows other line numbers, but every context line must be there.
        checkout.run("apply", "--cached", "-", data=patch.data, env=own)
    except GitError as error:
        raise _conflict(checkout, parent, patch, error) from error
    tree = checkout.run("write-tree", env=own)
    author = {"GIT_AUTHOR_NAME": patch.author, "GIT_AUTHOR_EMAIL": patch.email, "GIT_AUTHOR_DATE": patch.date}
    return checkout.run(
        "commit-tree", tree, "-p", parent,
        data=patch.message.encode("utf-8", "surrogateescape"),
        env={**author, **COMMITTER, "GIT_COMMITTER_DATE": patch.date},
    )  # fmt: skip


def _conflict(checkout: Checkout, parent: str, patch: Patch, error: GitError) -> PatchsetError:
    failed = re.search(r"^error: patch failed: (.+):(\d+)$", error.stderr, re.M)
    if error.disk_full or not re.search(r"^error: ", error.stderr, re.M):
        return error
    detail = error.stderr.splitlines()[0].removeprefix("error: ")
    if failed:
        detail = _explain(checkout.blob(parent, failed[1]), patch, failed[1], int(failed[2]))
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
