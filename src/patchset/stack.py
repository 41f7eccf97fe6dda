"""apply and unapply: what the commands do to all frameworks together."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from textwrap import indent

from .errors import Exit, PatchsetError, quoted, some
from .gitrepo import Checkout, Heads
from .patchfile import Patch
from .prepare import Conflict, content_hash, prepare_tip, touched
from .project import LOCK, Project, exclusive
from .selection import choose, left_out
from .switch import Move, check_movable, mend, switch

WORKERS = 4


@dataclass(frozen=True)
class Result:
    """What a command did: names of checkouts changed, absent, mended first; and remarks."""

    changed: list[str]
    absent: list[str]
    mended: list[str]
    remarks: list[str]


def apply(project: Project, features: list[str] | None = None) -> Result:
    """Bring every checkout to the commit with all its patches, or with those that `features` need.

    Raises PatchsetError: USAGE, BAD_INPUT, CONFLICT or REFUSED with every checkout as it was; BUSY; SYSTEM.
    """
    chosen, remarks = choose(project, features)

    def target(checkout: Checkout, heads: Heads) -> str:
        check_source(project, checkout, heads)
        name, patches = checkout.name, chosen[checkout.name]
        try:
            tip = prepare_tip(checkout, heads, patches)
        except Conflict as conflict:
            raise _name_left_out(project, chosen, name, conflict) from conflict
        expected = project.lock.frameworks[name].patched_sha256
        found = content_hash(checkout, tip, touched(patches)) if patches else None
        # The lock has the hash of the whole series only.
        if found != expected and patches == project.series[name]:
            remarks.append(_judge(project, name, found, expected))
        return tip

    return _move_all(project, target, features, remarks)


def unapply(project: Project) -> Result:
    """Bring every checkout back to its base.

    Raises PatchsetError: BAD_INPUT or REFUSED with every checkout as it was; BUSY; SYSTEM.
    """
    return _move_all(project, lambda _, heads: heads.base, None, [])


def _name_left_out(project: Project, chosen: dict[str, list[Patch]], name: str, conflict: Conflict) -> Conflict:
    """Where a selection may be why a patch does not fit, say so."""
    others = left_out(project, chosen, name, conflict.patch)
    if not others:
        return conflict
    return Conflict(
        conflict.patch,
        f"{conflict.what}\n{conflict.patch.shown} needs a patch that the selection leaves out: "
        + " or ".join(f"{other.shown} ({other.feature})" for other in others),
        f"select that feature too, or give {conflict.patch.name} the trailer `Depends-on: {others[-1].stem}`",
    )


def _move_all(
    project: Project, target: Callable[[Checkout, Heads], str], features: list[str] | None, remarks: list[str]
) -> Result:
    with exclusive(project):
        mended = mend(project)
        checkouts, absent = project.checkouts()
        if not checkouts:
            raise PatchsetError(f"{project.frameworks} holds no checkout", "run: patchset fetch", Exit.SOURCE)

        def plan(checkout: Checkout) -> tuple[Move, list[str]]:
            heads = checkout.heads()
            move = Move(checkout.name, heads.head, target(checkout, heads))
            return move, check_movable(checkout, heads, move.new)

        with ThreadPoolExecutor(WORKERS) as pool:
            plans = list(pool.map(plan, checkouts.values()))
        faults = [indent(some(each, "\n"), "  ") for _, each in plans if each]
        if faults:
            raise PatchsetError(
                "nothing was changed, because work would be lost or hidden:\n" + "\n".join(faults),
                "keep what is yours (git -C CHECKOUT diff > my.diff, or git -C CHECKOUT branch mine), then undo it "
                "there (git -C CHECKOUT checkout --detach -f patchset/base), or move the untracked file away",
                Exit.REFUSED,
            )
        moves = [move for move, _ in plans if move.old != move.new]
        switch(project, moves, features)
    return Result([move.name for move in moves], absent, mended, remarks)


def _judge(project: Project, name: str, found: str | None, expected: str | None) -> str:
    """Say that a hash differs from the lock's; returns the remark where that is no fault."""
    # Maintainers who reach no git host cannot compute the hash of a framework that has no sdist. Its base is a commit
    # that git itself has verified, so the patched tree is known all the same.
    if expected is None and project.lock.frameworks[name].sdist is None:
        return f"{name}: the lock has no patched_sha256 for it; these files have {found}"
    raise PatchsetError(
        f"{name}: the patched files have hash {found or 'none (no patches)'}, but {LOCK} says {expected or 'nothing'}",
        f"`git status patches/` shows edited patches; if the change is meant: patchset export --only {name}",
        Exit.CONFLICT,
    )


def check_source(project: Project, checkout: Checkout, heads: Heads) -> None:
    """Raise PatchsetError (REFUSED) if a checkout's base is not what the lock pins, as after a pin has moved."""
    framework = project.lock.frameworks[checkout.name]
    if heads.source not in framework.known_sources:
        raise PatchsetError(
            f"{checkout.path} is made of {heads.source or 'an unknown source'}, but {LOCK} pins {framework.version} "
            f"({framework.commit[:12]})",
            f"move {quoted(checkout.path)} away, then run: patchset fetch --only {checkout.name}",
            Exit.REFUSED,
        )
