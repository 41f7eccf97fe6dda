"""The command line: arguments in, text and an exit code out."""

import argparse
import json
import signal
import sys
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from . import fetch as fetching
from . import stack
from .errors import EXIT_TEXTS, Exit, PatchsetError
from .gitrepo import harden_environment
from .progress import Lines
from .project import LOCK, Project, find_project
from .status import FrameworkStatus, status


def main(argv: list[str] | None = None) -> int:
    """Run one command; a foreseeable fault is two lines on stderr and an exit code, never a traceback."""
    arguments = _parser().parse_args(argv)
    harden_environment()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the same clean end as Ctrl-C
    try:
        project = find_project(arguments.root)
        return arguments.run(project, arguments)
    except PatchsetError as error:
        return _fail(error.what, error.next_step, error.code)
    except OSError as error:
        return _fail(
            f"{error.filename or 'the system'}: {error.strerror}", "free some space, or mend its rights", Exit.SYSTEM
        )
    except KeyboardInterrupt:
        return _fail("interrupted", "nothing is half done; run the command again when you like", Exit.INTERRUPTED)


def _fail(what: str, next_step: str, code: Exit) -> int:
    print(f"error: {what}\nnext: {next_step}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    codes = "\n".join(f"  {code.value:<4} {text}" for code, text in EXIT_TEXTS.items())
    parser = argparse.ArgumentParser(
        prog="patchset",
        description="Pinned upstream frameworks and the patches on them.",
        epilog=f"exit codes:\n{codes}\n\nFRAMEWORKS_DIR moves the checkouts (default: frameworks/ in the repository).",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--root", help="the repository (default: PATCHSET_ROOT, or where this package lies)")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    command = commands.add_parser("fetch", help="make the missing checkouts")
    command.add_argument("--only", metavar="NAME", action="append", default=[], help="this framework (repeatable)")
    command.add_argument("--source", choices=["git", "sdist"], help="only from this kind of source")
    command.set_defaults(run=_fetch)

    command = commands.add_parser("apply", help="put all patches on all checkouts, or change nothing")
    command.set_defaults(run=_apply)

    command = commands.add_parser("unapply", help="restore the pristine checkouts")
    command.set_defaults(run=_unapply)

    command = commands.add_parser("status", help="what is applied, per framework and patch")
    command.add_argument("--json", action="store_true", help="for programs")
    command.set_defaults(run=_status)

    command = commands.add_parser("hash", help="(maintainers) the hashes of the patched files, for the lock")
    command.add_argument("--only", metavar="NAME", action="append", default=[], help="this framework (repeatable)")
    command.add_argument("--write", action="store_true", help=f"put them into {LOCK}")
    command.set_defaults(run=_hash)
    return parser


def _check_names(project: Project, only: list[str]) -> None:
    for name in only:
        if name not in project.lock.frameworks:
            raise PatchsetError(
                f"there is no framework {name!r}", f"take one of: {', '.join(project.lock.frameworks)}", Exit.USAGE
            )


def _fetch(project: Project, arguments: argparse.Namespace) -> int:
    _check_names(project, arguments.only)
    names = arguments.only or list(project.lock.frameworks)
    with Lines(names, Console()) as lines:
        outcomes = fetching.fetch(project, arguments.only, arguments.source, lines)
    missing = [outcome for outcome in outcomes if outcome.state in ("failed", "absent")]
    for outcome in missing:
        print(f"{outcome.name}: {outcome.state}: {outcome.detail}", file=sys.stderr)
        for reason in outcome.reasons:
            print(f"    {reason}", file=sys.stderr)
    if missing:
        print("next: mend the above, then run patchset fetch again; the finished ones are kept", file=sys.stderr)
    code = max((outcome.code for outcome in outcomes), default=Exit.OK)
    # A framework that has no sdist may be absent where git hosts are closed, as long as another one is there.
    return Exit.SOURCE if len(missing) == len(outcomes) and code is Exit.OK else code


def _apply(project: Project, _: argparse.Namespace) -> int:
    return _report(stack.apply(project), "applied", "nothing to do: all patches are applied already")


def _unapply(project: Project, _: argparse.Namespace) -> int:
    return _report(stack.unapply(project), "restored", "nothing to do: no patch is applied")


def _report(result: stack.Result, verb: str, nothing: str) -> int:
    for name in result.mended:
        print(f"{name}: an earlier command was killed half-way; its changes were taken back first")
    for name in result.changed:
        print(f"{name}: {verb}")
    for name in result.absent:
        print(f"{name}: source absent, skipped (patchset fetch --only {name})")
    for remark in result.remarks:
        print(remark)
    if not result.changed:
        print(nothing)
    return Exit.OK


def _hash(project: Project, arguments: argparse.Namespace) -> int:
    _check_names(project, arguments.only)
    for name, value in stack.hashes(project, arguments.only, arguments.write).items():
        print(f"{name} {value}")
    return Exit.OK


def _status(project: Project, arguments: argparse.Namespace) -> int:
    found = status(project)
    if arguments.json:
        print(json.dumps({"frameworks": {each.name: asdict(each) for each in found}}, indent=2))
        return Exit.OK
    rows = [row for each in found for row in _rows(each)]
    console = Console()
    if console.is_terminal:
        table = Table("framework", "patch", "state", "files", show_lines=False)
        for row in rows:
            table.add_row(*row, style="" if row[1] else "bold")
        console.print(table)
    else:  # nothing folded or cut, for a log or grep
        for name, *rest in rows:
            print("  ".join(filter(None, [name.ljust(16), *rest])))
    for each in found:
        if each.problem:
            print(f"{each.name}: {each.problem}")
        if each.next_step:
            print(f"{each.name}: next: {each.next_step}")
    return Exit.OK


def _rows(each: FrameworkStatus) -> list[tuple[str, str, str, str]]:
    whole = (each.name, "", f"{each.state} ({each.version})", " ".join(each.edited))
    return [whole, *((each.name, patch.name, patch.state, " ".join(patch.files)) for patch in each.patches)]
