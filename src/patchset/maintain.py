"""The command line's part for those who keep the patches: export, lint, rebase, bundle; imports as in `cli`."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import Exit, PatchsetError, quoted
from .project import LOCK, Project

if TYPE_CHECKING:
    from .export import Exported


def add_commands(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser("export", help="the checkouts' commits back to patches/, the hashes into the lock")
    add_only(command)
    command.add_argument("--check", action="store_true", help="write nothing; fail if anything would change")
    command.set_defaults(run=_export)

    command = commands.add_parser("rebase", help="what becomes of a framework's patches on another release")
    command.add_argument("name", metavar="NAME")
    command.add_argument("--to", metavar="VERSION", required=True)
    command.add_argument("--write", action="store_true", help="resolve, export and move the pin (run until it is done)")
    command.add_argument("--commit", help="the release's commit, where no git host can be asked")
    command.set_defaults(run=_rebase)

    command = commands.add_parser("bundle", help="one file with all sources, for machines without a network")
    command = command.add_subparsers(metavar="create", required=True).add_parser("create", help="write it")
    command.add_argument("file", metavar="FILE", type=Path)
    command.set_defaults(run=_bundle)

    command = commands.add_parser("lint", help="check every patch: trailers, paths, tests, blanks, syntax, imports")
    command.set_defaults(run=_lint)


def _bundle(project: Project, arguments: argparse.Namespace) -> int:
    from . import bundle

    packed, absent = bundle.create(project, arguments.file)
    size = arguments.file.stat().st_size / 1e6
    print(f"{arguments.file}: {', '.join(packed)} ({size:.1f} MB)")
    for name in absent:
        print(f"{name}: source absent, not in the bundle (patchset fetch --only {name})", file=sys.stderr)
    return Exit.OK


def _rebase(project: Project, arguments: argparse.Namespace) -> int:
    from . import rebase

    project.check_names([arguments.name])
    plan = rebase.what_if(project, arguments.name, arguments.to, arguments.commit)
    print(rebase.report(plan), end="")
    if not arguments.write:
        stuck = any(fate.state in ("conflicts", "file gone") for fate in plan.fates)
        return Exit.CONFLICT if stuck else Exit.OK
    exported = rebase.write(project, plan)
    if exported is None:
        raise PatchsetError(
            f"a patch does not fit; it is left to resolve in {plan.folder}",
            "there: edit, git add, git am --continue (or --skip to drop the patch); then run this again",
            Exit.CONFLICT,
        )
    _show(exported)
    there = quoted(project.path(plan.name))
    print(
        f"{LOCK} pins {plan.name} {plan.new.version} now\n"
        f"next: move {there} away, then: mv {quoted(plan.folder)} {there}"
    )
    return Exit.OK


def add_only(command: argparse.ArgumentParser) -> None:
    command.add_argument("--only", metavar="NAME", action="append", default=[], help="this framework (repeatable)")


def _export(project: Project, arguments: argparse.Namespace) -> int:
    from .export import export

    project.check_names(arguments.only)
    found = export(project, arguments.only, arguments.check)
    for each in found:
        _show(each)
    if not any(each.changed or each.removed for each in found):
        print(f"patches/ already holds what the {len(found)} checkouts do, byte for byte")
    return Exit.OK


def _show(exported: "Exported") -> None:
    for name in exported.changed:
        print(f"{exported.name}: wrote {name}")
    for name in exported.removed:
        print(f"{exported.name}: removed {name}")


def _lint(project: Project, _: argparse.Namespace) -> int:
    from .lint import lint
    from .why import changed_lines

    try:
        unseen = lint(project)
    finally:
        for name, patches in project.series.items():
            counts = [changed_lines(patch) for patch in patches]
            for patch, (added, removed) in zip(patches, counts, strict=True):
                print(f"{patch.shown:64} +{added} -{removed}")
            if patches:
                print(f"{name + ', ' + str(len(patches)) + ' patches':64} +{sum(added for added, _ in counts)}")
    for name in unseen:
        print(f"{name}: source absent, only its patch files were checked", file=sys.stderr)
    return Exit.OK
