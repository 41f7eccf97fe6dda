"""why: which patch a line of a checkout comes from. list: the table of all patches."""

import re
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from .errors import Exit, PatchsetError
from .gitrepo import Checkout, open_checkout
from .patchfile import Patch, read_trailers
from .project import Project

TITLE = "# The patches"
UNCOMMITTED = "0" * 40


@dataclass(frozen=True)
class Origin:
    """A piece of a file: the message of the commit that wrote it, and its patch file if patches/ still has it.

    Without a message: upstream's (`edited` False), or an edit that no commit holds.
    """

    lines: list[int]
    message: str | None = None
    patch: str | None = None
    edited: bool = False


def why(project: Project, where: str) -> tuple[str, list[Origin]]:
    """The framework, and the origin of a line (`PATH:LINE`) or of all the patched pieces of a file (`PATH`).

    Raises PatchsetError (USAGE) for what is no file of a checkout.
    """
    given, line = (found[1], int(found[2])) if (found := re.fullmatch(r"(.+):(\d+)", where)) else (where, None)
    checkout, path = _find(project, given)
    heads = checkout.heads()
    # Without a commit: of the file as it lies there, so the numbers are those that an editor shows.
    count = len((checkout.path / path).read_bytes().splitlines())
    if line is not None and not 1 <= line <= count:
        raise PatchsetError(f"{given} has {count} lines, not {line}", "name one of them", Exit.USAGE)
    ranges = [f"-L{line},{line}"] if line else []
    lines = checkout.run("blame", "--porcelain", *ranges, "--", path).splitlines()
    # The header of every line: commit, number in that commit, number now.
    headers = [found for each in lines if (found := re.match(r"([0-9a-f]{40}) \d+ (\d+)", each))]
    wrote = [(found[1], int(found[2])) for found in headers]
    ours = set(checkout.run("rev-list", f"{heads.base}..{heads.head}", "--", path).split())
    found = [_origin(project, checkout, heads.base, commit, [n for _, n in each]) for commit, each in _pieces(wrote)]
    if line:
        return checkout.name, found
    gone = ours - {commit for commit, _ in wrote}
    found += [_origin(project, checkout, heads.base, commit, []) for commit in gone]
    return checkout.name, [each for each in found if each.message or each.edited]


def _pieces(wrote: list[tuple[str, int]]):
    return [(commit, list(each)) for commit, each in groupby(wrote, key=lambda pair: pair[0])]


def _find(project: Project, given: str) -> tuple[Checkout, str]:
    for start in (Path.cwd(), project.root, project.frameworks):
        place = (start / given).resolve()
        for name in project.lock.frameworks:
            top = project.path(name).resolve()
            if place.is_file() and place.is_relative_to(top):
                return open_checkout(project.path(name)), str(place.relative_to(top))
    raise PatchsetError(
        f"{given} is no file of a checkout in {project.frameworks}",
        "name it from there: verl/verl/trainer/...",
        Exit.USAGE,
    )


def _origin(project: Project, checkout: Checkout, base: str, commit: str, lines: list[int]) -> Origin:
    if commit == UNCOMMITTED:
        return Origin(lines, edited=True)
    if commit == base or checkout.contains(base, commit):
        return Origin(lines)
    message = checkout.run("log", "-1", "--format=%B", commit).strip() + "\n"
    name = next((patch.shown for patch in project.series[checkout.name] if patch.message == message), None)
    return Origin(lines, message, name or f"commit {commit[:12]}, which is no patch of patches/{checkout.name}")


def explain(origin: Origin) -> str:
    """One origin for people."""
    where = f"line {origin.lines[0]}" if origin.lines else "only removes lines"
    if len(origin.lines) > 1:
        where = f"lines {origin.lines[0]}-{origin.lines[-1]}"
    if origin.edited:
        return f"{where}: an edit that is in no patch"
    if not origin.message:
        return f"{where}: upstream's own, no patch touches it"
    trailers = read_trailers(origin.message)
    subject, _, body = origin.message.partition("\n\n")
    reason = body.rpartition("\n\n")[0]
    said = [f"{where}: {origin.patch}", f"  {subject}", *(f"    {each}".rstrip() for each in reason.splitlines())]
    return "\n".join(said + [f"  {key}: {value}" for key, value in trailers.items()])


def markdown(project: Project) -> str:
    """docs/patches.md."""
    text = f"{TITLE}\n\nMade by `patchset list --markdown`; a test compares it.\n"
    for name, patches in project.series.items():
        if not patches:
            continue
        framework = project.lock.frameworks[name]
        added, removed = (sum(numbers) for numbers in zip(*map(changed_lines, patches), strict=True))
        text += f"\n## {name} {framework.version}: {len(patches)} patches, +{added} -{removed} lines\n"
        text += "| patch | what | feature | lines | upstream | test |\n|---|---|---|---|---|---|\n"
        for patch in patches:
            plus, minus = changed_lines(patch)
            cells = [
                f"[{patch.name[:4]}](../{patch.shown})",
                patch.subject,
                patch.feature,
                f"+{plus} -{minus}",
                patch.trailers.get("Upstream-Status", ""),
                f"`{patch.trailers.get('Tested-by', '')}`",
            ]
            text += "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
    return text


def changed_lines(patch: Patch) -> tuple[int, int]:
    return patch.diff.added, patch.diff.removed
