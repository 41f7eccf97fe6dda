"""The command line's part for those who keep the patches: export, lint, bundle."""

import argparse
import sys
from pathlib import Path

from . import bundle
from .errors import Exit
from .export import export
from .lint import lint
from .project import Project
from .why import changed_lines


def add_commands(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser("export", help="the checkouts' commits back to patches/, the hashes into the lock")
    add_only(command)
    command.add_argument("--check", action="store_true", help="write nothing; fail if anything would change")
    command.set_defaults(run=_export)

    command = commands.add_parser("bundle", help="one file with all sources, for machines without a network")
    command = command.add_subparsers(metavar="create", required=True).add_parser("create", help="write it")
    command.add_argument("file", metavar="FILE", type=Path)
    command.set_defaults(run=_bundle)

    command = commands.add_parser("lint", help="check every patch: trailers, paths, tests, blanks, syntax, imports")
    command.set_defaults(run=_lint)


def _bundle(project: Project, arguments: argparse.Namespace) -> int:
    packed, absent = bundle.create(project, arguments.file)
    size = arguments.file.stat().st_size / 1e6
    print(f"{arguments.file}: {', '.join(packed)} ({size:.1f} MB)")
    for name in absent:
        print(f"{name}: source absent, not in the bundle (patchset fetch --only {name})", file=sys.stderr)
    return Exit.OK


def add_only(command: argparse.ArgumentParser) -> None:
    command.add_argument("--only", metavar="NAME", action="append", default=[], help="this framework (repeatable)")


def _export(project: Project, arguments: argparse.Namespace) -> int:
    project.check_names(arguments.only)
    found = export(project, arguments.only, arguments.check)
    for each in found:
        for name in each.changed:
            print(f"{each.name}: wrote {name}")
        for name in each.removed:
            print(f"{each.name}: removed {name}")
    if not any(each.changed or each.removed for each in found):
        print(f"patches/ already holds what the {len(found)} checkouts do, byte for byte")
    return Exit.OK


def _lint(project: Project, _: argparse.Namespace) -> int:
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
