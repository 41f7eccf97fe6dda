"""rebase: what becomes of a framework's patches on another release; with --write, the way there."""

import difflib
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from . import fetch as fetching
from .errors import Exit, PatchsetError, Unavailable, some
from .export import Exported, series_of, settle, write_series
from .gitrepo import Checkout, GitError, Heads, is_absent, open_checkout
from .gitsource import find_tag
from .lock import Framework, set_key
from .patchfile import Patch, paths_of
from .prepare import COMMITTER, Conflict, apply_patches, best_place, prepare_tip, touched
from .progress import Lines
from .project import LOCK, Project, exclusive, write_whole
from .sdist import find_sdist
from .terminal import Terminal

UNKNOWN = "0" * 40


@dataclass(frozen=True)
class Fate:
    """One patch on the new base: applies, applies with offset, already upstream, conflicts or file gone."""

    patch: Patch
    state: str
    details: list[str]


@dataclass(frozen=True)
class Plan:
    """A framework on its way to another release; `project` is as it would then be, with the new checkout."""

    name: str
    old: Framework
    new: Framework
    notes: list[str]
    project: Project
    fates: list[Fate]

    @property
    def folder(self) -> Path:
        return self.project.path(self.name)


def what_if(project: Project, name: str, version: str, commit: str | None) -> Plan:
    """Fetch the release beside the pinned one and try every patch on it; nothing else is touched.

    Raises PatchsetError (SOURCE) if it cannot be had.
    """
    old = project.lock.frameworks[name]
    if version == old.version:
        raise PatchsetError(f"{name} {version} is what {LOCK} pins", "name another version", Exit.USAGE)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", version):  # it becomes a folder's name and a tag
        raise PatchsetError(f"{version!r} is no version", "name one as upstream does: 0.8.0", Exit.USAGE)
    if commit and not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise PatchsetError(f"{commit!r} is no commit", "give all its 40 digits", Exit.USAGE)
    new, source, notes = _release(old, version, commit)
    lock = project.lock.model_copy(update={"frameworks": {**project.lock.frameworks, name: new}})
    beside = Project(project.root, project.frameworks / f".rebase-{version}", lock)
    with Lines([name], Terminal(stderr=True)) as lines:
        (outcome,) = fetching.fetch(beside, [name], source, lines)
    if outcome.code is not Exit.OK or outcome.state == "absent":
        raise PatchsetError(
            "\n    ".join([f"{name} {version}: {outcome.detail}", *outcome.reasons]), "mend the above", Exit.SOURCE
        )
    checkout = open_checkout(beside.path(name))
    notes.append(f"base: {checkout.heads().source}")
    return Plan(name, old, new, notes, beside, list(_fates(checkout, checkout.heads().base, project.series[name])))


def _release(old: Framework, version: str, commit: str | None) -> tuple[Framework, str | None, list[str]]:
    """The pin on `version`, the kind of source that can be had, and what is to be said about both."""
    tag = old.tag.replace(old.version, version) if old.tag else f"v{version}"
    notes, sdist = [], None
    for url in old.sources if not commit else []:
        try:
            commit = find_tag(url, tag)
            notes.append(f"commit {commit}: tag {tag} of {url}")
            break
        except Unavailable as error:
            notes.append(f"{url}: {error.what}")
    if old.sdist:
        try:
            sdist = find_sdist(old.sdist, old.sdist.file.replace(old.version, version))
            notes.append(
                f"{sdist.file}: sha256 {sdist.sha256} is what the package index says; nothing else vouches for it"
            )
        except Unavailable as error:
            notes.append(f"sdist: {error.what}")
    if not commit and not sdist:
        raise PatchsetError("\n    ".join([f"no source has {version}", *notes]), "check the version", Exit.SOURCE)
    update = {"version": version, "tag": tag, "commit": commit or UNKNOWN, "sdist": sdist, "patched_sha256": None}
    return old.model_copy(update=update), None if commit else "sdist", notes


def _fates(checkout: Checkout, base: str, patches: list[Patch]):
    """Try the patches in their order. One that does not fit is left out; later ones may then miss it."""
    with checkout.own_index(base) as own:
        for patch in patches:
            try:
                checkout.run("apply", "--cached", "--check", "--reverse", "-", data=patch.data, env=own)
                yield Fate(patch, "already upstream", [])
                continue
            except GitError:
                pass
            places = list(_places(checkout, own, patch))
            try:
                apply_patches(checkout, own, [patch])
            except Conflict as conflict:
                gone = list(_gone(checkout, own, patch))
                details = gone + [each for _, each in places if each] or [conflict.what]
                yield Fate(patch, "file gone" if gone else "conflicts", details)
            else:
                moved = [where for where, _ in places if where]
                yield Fate(patch, "applies with offset" if moved else "applies", moved)
    checkout.close()


def _places(checkout: Checkout, own: dict[str, str], patch: Patch):
    """Per hunk: where it fits, if not at its line; and both sides, if nowhere."""
    for file in patch.diff:
        content = checkout.staged(own, file.source_file[2:]) if file.source_file != "/dev/null" else None
        there = (content or b"").decode("utf-8", "surrogateescape").splitlines()
        for number, hunk in enumerate(file if content is not None else [], 1):
            wanted = [line[1:].rstrip("\n") for line in hunk.source]
            at, fitting = best_place(there, wanted, hunk.source_start)
            where = f"{file.path}, hunk {number} of {len(file)}"
            if fitting == len(wanted):
                offset = at + 1 - hunk.source_start
                yield (f"{where}: {offset:+} lines" if offset and hunk.source_start else "", "")
            else:
                sides = difflib.unified_diff(
                    wanted, there[at : at + len(wanted)], "the patch expects", f"is there, line {at + 1}", lineterm=""
                )
                yield "", "\n".join([f"{where} (line {hunk.source_start}):", *sides])


def _gone(checkout: Checkout, own: dict[str, str], patch: Patch):
    """Files that the patch changes and that are not there, with files of the same name elsewhere."""
    for file in patch.diff:
        old = paths_of(file)[0]
        if file.source_file == "/dev/null" or checkout.staged(own, old) is not None:
            continue
        names = checkout.paths("ls-files", "-z", env=own)
        alike = [path for path in names if PurePosixPath(path).name == PurePosixPath(old).name]
        yield f"{old} is gone" + (f"; of that name: {', '.join(alike[:4])}" if alike else "")


def report(plan: Plan) -> str:
    """The plan as Markdown."""
    title = f"# {plan.name} {plan.old.version} to {plan.new.version}: what becomes of the patches"
    notes = "\n".join(f"- {note}" for note in plan.notes)
    if not plan.fates:
        return f"{title}\n\n{notes}\n\nThere are no patches for {plan.name}: only the pin would move.\n"
    rows = "\n".join(f"| {fate.patch.name} | {fate.patch.feature} | {fate.state} |" for fate in plan.fates)
    text = f"{title}\n\n{notes}\n\n| patch | feature | on {plan.new.version} |\n|---|---|---|\n{rows}\n"
    for fate in plan.fates:
        if fate.details:
            details = "\n".join(fate.details)
            text += f"\n## {fate.patch.name}: {fate.state}\n```diff\n{details}\n```\n"
    stuck = [fate for fate in plan.fates if fate.state in ("conflicts", "file gone")]
    if stuck:
        text += f"\n{len(stuck)} of {len(plan.fates)} need work. Each was tried without those that failed before it.\n"
    return text


def write(project: Project, plan: Plan) -> Exported | None:
    """Put the patches on the new base; once all are there, export them and move the pin.

    Returns None after the first conflict: the checkout is left to resolve it in. Raises PatchsetError: REFUSED while
    that is going on, SOURCE where the new pin is not fully known.
    """
    if plan.new.commit == UNKNOWN or (plan.old.sdist and not plan.new.sdist):
        what = "commit" if plan.new.commit == UNKNOWN else "sdist"
        raise PatchsetError(
            f"{plan.name} {plan.new.version}: its {what} is not known here, and {LOCK} needs it",
            f"--commit COMMIT, from a machine that can say: git ls-remote {plan.old.sources[0]} {plan.new.tag}"
            if what == "commit"
            else "check the network or PIP_INDEX_URL",
            Exit.SOURCE,
        )
    with exclusive(project):
        checkout = open_checkout(plan.folder)
        heads = checkout.heads()
        if state := checkout.busy_state():
            raise PatchsetError(
                f"{plan.folder}: conflicts are being resolved ({state})",
                "there: edit, git add, git am --continue (or --skip to drop the patch); then run this again",
                Exit.REFUSED,
            )
        # At the base: nothing was begun, or it was given up (git am --abort).
        if heads.head == heads.base and not _am(project, plan, checkout, heads):
            return None
        heads = checkout.heads()
        if faults := checkout.dirty():
            raise PatchsetError(f"{plan.folder}: edited: {some(faults)}", "commit it or undo it", Exit.REFUSED)
        exported = series_of(checkout, heads, heads.head, project.series[plan.name])
        text = _moved_lock((project.root / LOCK).read_text(), plan, exported)
        write_series(project.root / "patches" / plan.name, exported)
        write_whole(project.root / LOCK, text)
        settle(checkout, heads.head, exported)
    return exported


def _am(project: Project, plan: Plan, checkout: Checkout, heads: Heads) -> bool:
    """Begin: every patch that is not upstream already, three-way. False if one stopped it."""
    patches = [fate.patch for fate in plan.fates if fate.state != "already upstream"]
    _lend_old_files(project, plan.name, checkout)
    checkout.run("checkout", "--quiet", "-B", "patched", heads.base)
    if not patches:
        return True
    files = [str(project.root / patch.shown) for patch in patches]
    try:
        # --keep-non-patch: of a subject's brackets only [PATCH] goes.
        checkout.run("am", "--quiet", "--3way", "--keep-cr", "--no-scissors", "--keep-non-patch", *files, env=COMMITTER)
    except GitError:
        if not checkout.busy_state():
            raise
        return False
    return True


def _lend_old_files(project: Project, name: str, checkout: Checkout) -> None:
    """Give the new checkout the old versions of the patched files: a three-way merge starts from them."""
    patches = project.series[name]
    if is_absent(project.path(name)) or not patches:
        return
    pinned = open_checkout(project.path(name))
    old = pinned.heads()
    tip = prepare_tip(pinned, old, patches)
    commits = [old.base, *pinned.run("rev-list", f"{old.base}..{tip}").split()]
    with tempfile.TemporaryDirectory() as scratch:
        pack = Path(scratch, "pack")
        pinned.pack(pack, *commits, "--", *touched(patches))
        checkout.run("unpack-objects", "-q", data=pack.read_bytes())


def _moved_lock(text: str, plan: Plan, exported: Exported) -> str:
    for key in ("version", "tag", "commit"):
        text = set_key(text, plan.name, key, getattr(plan.new, key))
    if plan.old.sdist:
        text = text.replace(plan.old.sdist.file, plan.new.sdist.file).replace(
            plan.old.sdist.sha256, plan.new.sdist.sha256
        )
    return set_key(text, plan.name, "patched_sha256", exported.patched_sha256)
