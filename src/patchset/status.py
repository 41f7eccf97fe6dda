"""status: what is applied, per framework and per patch, read without changing a work tree."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from .errors import Exit, PatchsetError, quoted, some
from .gitrepo import Checkout, is_absent, open_checkout
from .patchfile import Patch
from .prepare import prepare_tip
from .project import Project, holder
from .selection import choose, recorded
from .stack import WORKERS, check_source
from .switch import read_journal

NEXT = {
    "absent": "patchset fetch --only {name}",
    "interrupted": "patchset apply (or unapply)",
    "not applied": "patchset apply",
    "outdated": "patchset apply",
    "drifted": "git -C {path} diff",
    "foreign": "git -C {path} log patchset/base..",
    "damaged": "keep what is yours there, move {path} away, then run: patchset fetch --only {name}",
}


@dataclass(frozen=True)
class PatchStatus:
    """One patch: applied, not applied, drifted (then `files` differ), left out, absent, interrupted."""

    name: str
    subject: str
    state: str
    files: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class FrameworkStatus:
    """One framework.

    state: applied, not applied, no patches, drifted, outdated (an older stack or pin), foreign (commits or a folder not
    patchset's), damaged (git fails there), absent, interrupted, switching. `edited` holds the changed files that no
    patch touches.
    """

    name: str
    version: str
    state: str
    next_step: str | None
    source: str | None = None
    base: str | None = None
    head: str | None = None
    edited: list[str] = field(default_factory=list)
    problem: str | None = None
    patches: list[PatchStatus] = field(default_factory=list)


def status(project: Project) -> list[FrameworkStatus]:
    """The state of every framework of the lock. Raises PatchsetError (BAD_INPUT) for a bad lock or patch."""
    switching = {move.name for move in read_journal(project).moves}
    chosen = choose(project, recorded(project))[0]
    stopped = "switching" if holder(project) else "interrupted"

    def one(name: str) -> FrameworkStatus:
        patches = chosen[name]
        if is_absent(project.path(name)):
            return _whole(project, name, patches, "absent")
        if name in switching:
            return _whole(project, name, patches, stopped)
        try:
            checkout = open_checkout(project.path(name))
        except PatchsetError as error:
            return replace(_whole(project, name, patches, "foreign", problem=error.what), next_step=error.next_step)
        try:
            return _inspect(project, checkout, patches)
        except PatchsetError as error:
            return _whole(project, name, patches, "damaged", problem=error.what)

    def with_left_out(found: FrameworkStatus) -> FrameworkStatus:
        states = {patch.name: patch for patch in found.patches}
        every = project.series[found.name]
        return replace(found, patches=[states.get(p.name, PatchStatus(p.name, p.subject, "left out")) for p in every])

    with ThreadPoolExecutor(WORKERS) as pool:
        return [with_left_out(found) for found in pool.map(one, project.lock.frameworks)]


def _whole(project: Project, name: str, patches: list[Patch], state: str, **more) -> FrameworkStatus:
    """A framework all of whose patches are in the same state."""
    each = [PatchStatus(patch.name, patch.subject, state) for patch in patches]
    next_step = NEXT.get(state, "").format(name=name, path=quoted(project.path(name))) or None
    return FrameworkStatus(name, project.lock.frameworks[name].version, state, next_step, patches=each, **more)


def _inspect(project: Project, checkout: Checkout, patches: list[Patch]) -> FrameworkStatus:
    heads, dirty = checkout.heads(), checkout.dirty()
    whole = partial(
        _whole, project, checkout.name, patches, source=heads.source, base=heads.base, head=heads.head, edited=dirty
    )
    try:
        check_source(project, checkout, heads)
    except PatchsetError as error:
        return replace(whole("outdated", problem=error.what), next_step=error.next_step)
    problem = some(checkout.hidden_faults(), "\n") or None
    if heads.head == heads.base:
        return whole("not applied" if patches else "no patches", problem=problem)
    try:
        tip = prepare_tip(checkout, heads, patches)
    except PatchsetError as error:
        if error.code is not Exit.CONFLICT:
            raise
        tip, problem = heads.base, error.what
    differing = {*checkout.changed(tip, heads.head), *dirty}
    each = []
    for patch in patches:
        files = sorted(differing.intersection(patch.files))
        each.append(PatchStatus(patch.name, patch.subject, "drifted" if files else "applied", files))
    if heads.head not in heads.ours:
        state = "foreign"
    elif heads.head != tip:
        state = "outdated"
    else:
        state = "drifted" if differing else "applied"
    edited = sorted(differing.difference(path for patch in patches for path in patch.files))
    return replace(whole(state, edited=edited, problem=problem), patches=each)
