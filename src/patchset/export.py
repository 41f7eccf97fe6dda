"""export: a checkout's commits back to patch files; the same commits give the same bytes, whoever's git writes them."""

import os
import re
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import indent

from .errors import Exit, PatchsetError, quoted, some
from .gitrepo import BRANCH, Checkout, Heads
from .lock import set_key
from .patchfile import Patch, parse_patch
from .prepare import content_hash, prepare_tip, stack_digest, touched
from .project import LOCK, Project, exclusive, write_whole
from .stack import check_source

# No configuration of a user, a machine or a checkout is read.
BARE = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.quotePath",  # names outside ASCII as they are
    "GIT_CONFIG_VALUE_0": "false",
    "GIT_ATTR_NOSYSTEM": "1",
}
FORMAT = (
    "--zero-commit",  # no hash that depends on the base's kind
    "--no-signature",  # no version of git
    "--no-stat",
    "--full-index",  # or the length of hashes would depend on the size of the repository
    "--no-numbered",
    "--no-renames",  # similarity is a heuristic
)
SLUG_LENGTH = 48


@dataclass(frozen=True)
class Exported:
    """What one framework's checkout gives: the whole series, and how the files in patches/ differ from it."""

    name: str
    patches: list[Patch]
    patched_sha256: str | None
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


def export(project: Project, only: list[str], check: bool) -> list[Exported]:
    """Write the patches of every checkout that is there, and the lock's hashes; with `check` write nothing.

    The commits between base and branch `patched` count; where patchset itself made the last one, the patch files do.
    Raises PatchsetError: REFUSED for edits that no commit holds, or changes on both sides; BAD_INPUT or CONFLICT for
    commits that cannot be patches, or with `check` for any difference. Then nothing was written.
    """
    with exclusive(project):
        checkouts, _ = project.checkouts()
        # The commit to export, its checkout and what comes of it.
        work = [_export(project, each) for name, each in checkouts.items() if not only or name in only]
        found = [exported for _, _, exported in work]
        text = (project.root / LOCK).read_text()
        for each in found:
            text = set_key(text, each.name, "patched_sha256", each.patched_sha256)
        if check:
            _compare(project, found, text)
            return found
        for each in found:
            write_series(project.root / "patches" / each.name, each)
        write_whole(project.root / LOCK, text)
        for checkout, commit, exported in work:
            if commit == checkout.heads().head:
                settle(checkout, commit, exported)
    return found


def settle(checkout: Checkout, commit: str, exported: Exported) -> None:
    """Move the branch from the exported commit to the one that apply makes of the patches: the same tree."""
    tip = prepare_tip(checkout, checkout.heads(), exported.patches)
    if tip != commit:
        checkout.run("update-ref", "-m", "patchset export", BRANCH, tip)


def _export(project: Project, checkout: Checkout) -> tuple[Checkout, str, Exported]:
    heads = checkout.heads()
    check_source(project, checkout, heads)
    old = project.series[checkout.name]
    commit = prepare_tip(checkout, heads, old) if heads.head in heads.ours else _own_commits(checkout, heads, old)
    return checkout, commit, series_of(checkout, heads, commit, old)


def _own_commits(checkout: Checkout, heads: Heads, old: list[Patch]) -> str:
    """The maintainer's HEAD. Raises PatchsetError (REFUSED) if something would be lost on the way to patches."""
    where, faults = checkout.path, [f"{checkout.path}/{path} is edited" for path in checkout.dirty()]
    faults += checkout.hidden_faults()
    if state := checkout.busy_state():
        faults.append(f"{where}: a git operation is under way ({state}); finish or abort it")
    if heads.head != heads.branch:
        faults.append(f"{where}: HEAD is not on the branch patched (git -C {quoted(where)} checkout -B patched)")
    if not checkout.contains(heads.head, heads.base):
        faults.append(f"{where}: HEAD does not stand on patchset/base")
    if merges := checkout.run("rev-list", "--merges", f"{heads.base}..{heads.head}"):
        faults.append(f"{where}: a merge cannot be a patch ({merges[:12]}); rebase instead")
    # The branch's own log tells what was applied last; a hand-edited patch since then must not be overwritten.
    # Series that differ in the names of their files alone are the same commits.
    log = checkout.run("log", "-g", "--format=%H", "patched").splitlines() if heads.branch else []
    applied = next((commit for commit in log if commit in heads.tips.values()), None)
    if applied != (heads.tips.get(stack_digest(heads.base, old), "unknown") if old else None):
        faults.append(f"patches/{checkout.name} has changed since it was applied, and {where} has commits of its own")
    if faults:
        raise PatchsetError(
            "nothing was exported:\n" + indent(some(faults, "\n"), "  "),
            f"commit what belongs to a patch; where patches/ changed too, restore it "
            f"(git checkout -- patches/{checkout.name}) or apply it first",
            Exit.REFUSED,
        )
    return heads.head


def series_of(checkout: Checkout, heads: Heads, commit: str, old: list[Patch]) -> Exported:
    """The series that leads from the base to `commit`, under the names of `old` where a patch is still there.

    Raises PatchsetError (BAD_INPUT, CONFLICT) if patches cannot say what the commits do.
    """
    name, base = checkout.name, heads.base
    mend = f"mend it there: git -C {quoted(checkout.path)} rebase -i patchset/base"
    try:
        patches = [
            parse_patch(data, f"{number:04}-x.patch", f"{name}: commit {number} of {base[:12]}..{commit[:12]}")
            for number, data in enumerate(format_patches(checkout, base, commit), 1)
        ]
    except PatchsetError as error:
        raise error if error.code is Exit.SYSTEM else PatchsetError(error.what, mend, error.code) from error
    messages = checkout.run("log", "--reverse", "--format=%B%x00", f"{base}..{commit}").split("\0")[:-1]
    if [_one_line(each) for each in messages] != [_one_line(patch.message) for patch in patches]:
        raise PatchsetError(
            f"{name}: a message that holds a line `---` or `diff --git`, cannot become a patch",
            mend,
            Exit.BAD_INPUT,
        )
    patches = _named(patches, old, f"patches/{name}", checkout.path)
    tip = prepare_tip(checkout, heads, patches)
    if checkout.tree(tip) != checkout.tree(commit):
        raise PatchsetError(
            f"{name}: the exported patches do not give the tree of {commit[:12]}",
            "a file mode, a link or a submodule changed that a patch cannot hold; take it out of the commit",
            Exit.CONFLICT,
        )
    before, after = ({patch.name: patch.data for patch in series} for series in (old, patches))
    return Exported(
        name,
        patches,
        content_hash(checkout, tip, touched(patches)) if patches else None,
        [each for each in after if before.get(each) != after[each]],
        [each for each in before if each not in after],
    )


def format_patches(checkout: Checkout, base: str, tip: str) -> list[bytes]:
    """Every commit of base..tip as a patch file, made in an empty repository that borrows the checkout's objects."""
    with tempfile.TemporaryDirectory() as empty:
        git_dir = checkout.path / ".git"
        own = {**BARE, "GIT_DIR": empty, "GIT_WORK_TREE": empty}
        checkout.run("init", "--quiet", "--template=", env=own)
        if (git_dir / "shallow").exists():
            shutil.copy(git_dir / "shallow", empty)
        own["GIT_OBJECT_DIRECTORY"] = str(git_dir / "objects")
        out = Path(empty, "out")
        checkout.run("format-patch", "--quiet", *FORMAT, "-o", str(out), f"{base}..{tip}", env=own)
        return [path.read_bytes() for path in sorted(out.glob("*"))]


def _one_line(message: str) -> str:
    subject, _, body = message.strip().partition("\n\n")
    return f"{' '.join(subject.split())}\n\n{body}".strip()


def _named(new: list[Patch], old: list[Patch], shown: str, where: Path) -> list[Patch]:
    """Give every patch its file name: that of the old patch it comes from, or one made of feature and subject."""
    origin: list[Patch | None] = []
    for patch in new:
        free = [each for each in old if each not in origin]
        origin.append(next((each for each in free if each.subject == patch.subject), None))
    for i, patch in enumerate(new):
        if origin[i] is None and (i == 0 or origin[i - 1]):
            # A new subject in the place of a patch that is gone: the same patch, reworded.
            place = old.index(origin[i - 1]) + 1 if i else 0
            reworded = [each for each in old[place : place + 1] if each not in origin and each.feature == patch.feature]
            origin[i] = reworded[0] if reworded else None
    named = []
    for number, (patch, source) in enumerate(zip(new, origin, strict=True), 1):
        if not (source or patch.feature):
            raise PatchsetError(
                f"{patch.shown}: {patch.subject!r} has no trailer Feature",
                f"git -C {quoted(where)} rebase -i patchset/base, and add Feature, Upstream-Status and Tested-by",
                Exit.BAD_INPUT,
            )
        name = f"{number:04}-{source.stem if source else _slug(patch.feature, patch.subject)}.patch"
        named.append(replace(patch, shown=f"{shown}/{name}", name=name, number=number))
    return named


def _slug(*words: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")
    return slug if len(slug) <= SLUG_LENGTH else slug[: SLUG_LENGTH + 1].rpartition("-")[0]


def _compare(project: Project, found: list[Exported], text: str) -> None:
    faults = [f"patches/{each.name}/{name}" for each in found for name in [*each.changed, *each.removed]]
    if text != (project.root / LOCK).read_text():
        faults.append(LOCK)
    if faults:
        raise PatchsetError(
            "export would change:\n" + "\n".join(f"  {fault}" for fault in faults),
            "run: patchset export",
            Exit.CONFLICT,
        )


def write_series(folder: Path, exported: Exported) -> None:
    for patch in exported.patches:
        if patch.name in exported.changed:
            folder.mkdir(exist_ok=True)
            write_whole(folder / patch.name, patch.data)
    for name in exported.removed:
        (folder / name).unlink()
