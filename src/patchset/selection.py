"""Which patches a choice of features needs, and the record of the choice beside the checkouts."""

import json
from collections.abc import Iterator

from .errors import Exit, PatchsetError
from .patchfile import Patch
from .project import Project, write_whole

ALWAYS = "fix"  # mends what features stand on, and nothing else: in every selection
Key = tuple[str, str]  # a framework and a patch's file name


def choose(project: Project, features: list[str] | None) -> tuple[dict[str, list[Patch]], list[str]]:
    """The patches of these features (None: all) and of what they depend on, per framework, and remarks on the latter.

    Raises PatchsetError: USAGE for an unknown feature, BAD_INPUT for a Depends-on that names no earlier patch.
    """
    if features is None:
        return project.series, []
    known = project.lock.features
    for feature in features:
        if feature not in known:
            raise PatchsetError(f"there is no feature {feature!r}", f"take some of: {', '.join(known)}", Exit.USAGE)
    every = {(name, patch.name): patch for name, patches in project.series.items() for patch in patches}
    todo = [key for key, patch in every.items() if patch.feature in {*features, ALWAYS}]
    chosen, remarks = set(todo), []
    while todo:
        user = todo.pop()
        for needed in dependencies(project, user[0], every[user]):
            if needed not in chosen:
                chosen.add(needed)
                todo.append(needed)
                remarks.append(f"{needed[0]}: {every[needed].shown} too, because {every[user].shown} depends on it")
    picked = {name: [p for p in patches if (name, p.name) in chosen] for name, patches in project.series.items()}
    return picked, remarks


def dependencies(project: Project, framework: str, patch: Patch) -> Iterator[Key]:
    """The patches that its Depends-on trailer names: `cpu-gloo-backend, vllm/fix-rms-norm`.

    A patch is named by its file name without number and ending, which renumbering changes. Raises PatchsetError
    (BAD_INPUT) if there is none of that name, or in the same framework none before it.
    """
    for each in filter(None, (word.strip() for word in patch.trailers.get("Depends-on", "").split(","))):
        where, _, stem = each.rpartition("/")
        where = where or framework
        series = project.series.get(where, [])
        if where == framework:
            series = [other for other in series if other.number < patch.number]
        found = [other for other in series if other.stem == stem]
        if len(found) != 1:
            count = f"{len(found)} patches are" if found else "no patch is"
            raise PatchsetError(
                f"{patch.shown}: Depends-on: {each}: {count} called patches/{where}/NNNN-{stem}.patch"
                + (" and come before it" if where == framework else ""),
                "name a patch by its file name without number and .patch; restore it if it was removed",
                Exit.BAD_INPUT,
            )
        yield where, found[0].name


def left_out(project: Project, chosen: dict[str, list[Patch]], name: str, patch: Patch) -> list[Patch]:
    """Patches that a selection leaves out, earlier than `patch` and on the same files: one of them it may need."""
    return [
        other
        for other in project.series[name]
        if other not in chosen[name] and other.number < patch.number and set(other.files) & set(patch.files)
    ]


def record(project: Project, features: list[str] | None) -> None:
    """Keep what `apply` selected, for status and verify; None (everything) is the absence of a record."""
    path = project.frameworks / ".patchset-features.json"
    if features is None:
        path.unlink(missing_ok=True)
    else:
        write_whole(path, json.dumps(features))


def recorded(project: Project) -> list[str] | None:
    """The features that the last apply selected, None for all. Raises PatchsetError (REFUSED) for a damaged record."""
    path = project.frameworks / ".patchset-features.json"
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise PatchsetError(
            f"{path} is damaged", "remove it, then run: patchset apply (with its --feature)", Exit.REFUSED
        )
    # A feature that the lock no longer has selects nothing.
    return [feature for feature in found if feature in project.lock.features]
