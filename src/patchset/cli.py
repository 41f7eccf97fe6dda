"""The command line: arguments in, text and an exit code out.

Each command imports what it alone needs: together that takes longer than a whole `patchset apply`.
"""

import argparse
import json
import os
import shutil
import signal
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from . import maintain
from .errors import EXIT_TEXTS, Exit, PatchsetError, some, system_hint
from .gitrepo import harden_environment
from .project import Project, find_project

if TYPE_CHECKING:
    from .stack import Result
    from .status import FrameworkStatus


def main(argv: list[str] | None = None) -> int:
    """Run one command; a foreseeable fault is two lines on stderr and an exit code, never a traceback."""
    arguments = _parser().parse_args(argv)
    harden_environment()
    for stream in (sys.stdout, sys.stderr):  # names of files need not be text
        stream.reconfigure(errors="backslashreplace")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, signal.default_int_handler)  # the same clean end as Ctrl-C
    try:
        if shutil.which("git") is None:
            raise PatchsetError("git was not found", "install git 2.31 or newer", Exit.SYSTEM)
        project = find_project(arguments.root)
        code = arguments.run(project, arguments)
        sys.stdout.flush()
        return code
    except PatchsetError as error:
        return _fail(error.what, error.next_step, error.code)
    except BrokenPipeError:
        # Whoever read it has enough; Python would complain once more at its own end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        return _fail(f"{error.filename or 'the system'}: {error.strerror}", system_hint(error), Exit.SYSTEM)
    except KeyboardInterrupt:
        return _fail("interrupted", "nothing is half done; run the command again when you like", Exit.INTERRUPTED)


def _fail(what: str, next_step: str, code: Exit) -> int:
    with suppress(OSError):  # the terminal may be gone
        print(f"error: {what}\nnext: {next_step}", file=sys.stderr, flush=True)
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
    maintain.add_only(command)
    kinds = command.add_mutually_exclusive_group()
    kinds.add_argument("--source", choices=["git", "sdist"], help="only from this kind of source")
    kinds.add_argument(
        "--bundle", metavar="FILE", type=Path, help="only from what `bundle create` wrote, without network"
    )
    command.set_defaults(run=_fetch)

    command = commands.add_parser("apply", help="put all patches on all checkouts, or change nothing")
    command.add_argument("--feature", metavar="NAME", action="append", help="only what this needs (repeatable)")
    command.set_defaults(run=_apply)

    command = commands.add_parser("unapply", help="restore the pristine checkouts")
    command.set_defaults(run=_unapply)

    command = commands.add_parser("status", help="what is applied, per framework and patch")
    command.add_argument("--json", action="store_true", help="for programs")
    command.set_defaults(run=_status)

    command = commands.add_parser("verify", help="read every file anew: are the checkouts what the lock says?")
    command.set_defaults(run=_verify)

    command = commands.add_parser("why", help="which patch a file's line comes from, and what it is for")
    command.add_argument("where", metavar="PATH[:LINE]", help="a file of a checkout")
    command.set_defaults(run=_why)

    command = commands.add_parser("list", help="the table of patches")
    command.add_argument("--markdown", action="store_true", help="as docs/patches.md has it")
    command.set_defaults(run=_list)

    maintain.add_commands(commands)
    return parser


def _fetch(project: Project, arguments: argparse.Namespace) -> int:
    from . import fetch as fetching
    from .bundle import Bundle
    from .progress import Lines
    from .terminal import Terminal

    project.check_names(arguments.only)
    names = arguments.only or list(project.lock.frameworks)
    bundle = Bundle(arguments.bundle) if arguments.bundle else None
    if bundle and (remark := bundle.remark(project)):
        print(remark)
    with Lines(names, Terminal()) as lines:
        outcomes = fetching.fetch(project, arguments.only, bundle or arguments.source, lines)
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


def _apply(project: Project, arguments: argparse.Namespace) -> int:
    from . import stack

    what = "these" if arguments.feature else "all"
    result = stack.apply(project, arguments.feature)
    return _report(result, "applied", f"nothing to do: {what} patches are applied already")


def _unapply(project: Project, _: argparse.Namespace) -> int:
    from . import stack

    return _report(stack.unapply(project), "restored", "nothing to do: no patch is applied")


def _report(result: "Result", verb: str, nothing: str) -> int:
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


def _status(project: Project, arguments: argparse.Namespace) -> int:
    from .selection import recorded
    from .status import status

    found = status(project)
    if arguments.json:
        frameworks = {each.name: asdict(each) for each in found}
        print(json.dumps({"features": recorded(project), "frameworks": frameworks}, indent=2))
        return Exit.OK
    rows = [row for each in found for row in _rows(each)]
    if sys.stdout.isatty():
        from rich.table import Table

        from .terminal import Terminal

        table = Table("framework", "patch", "state", "files", show_lines=False)
        for row in rows:
            table.add_row(*row, style="" if row[1] else "bold")
        Terminal().print(table)
    else:  # nothing folded or cut, for a log or grep
        for name, *rest in rows:
            print("  ".join(filter(None, [name.ljust(16), *rest])))
    for each in found:
        if each.problem:
            print(f"{each.name}: {each.problem}")
        if each.next_step:
            print(f"{each.name}: next: {each.next_step}")
    return Exit.OK


def _rows(each: "FrameworkStatus") -> list[tuple[str, str, str, str]]:
    whole = (each.name, "", f"{each.state} ({each.version})", some(each.edited))
    return [whole, *((each.name, patch.name, patch.state, some(patch.files)) for patch in each.patches)]


def _verify(project: Project, _: argparse.Namespace) -> int:
    from .verify import attestation, one_line, verify

    verdicts = verify(project)
    for each in verdicts:
        state = {True: "right", False: "WRONG", None: "absent"}[each.right]
        print("  ".join(filter(None, [f"{each.name:16}{state:6}", each.found, each.detail])))
    print(one_line(attestation(project)))
    wrong = [each.name for each in verdicts if each.right is False]
    if wrong:
        raise PatchsetError(f"not what the lock says: {', '.join(wrong)}", "patchset status", Exit.CONFLICT)
    return Exit.OK


def _why(project: Project, arguments: argparse.Namespace) -> int:
    from .why import explain, why

    name, origins = why(project, arguments.where)
    for each in origins:
        print(explain(each))
    if not origins:
        print(f"no patch that is applied in {name} touches this file")
    return Exit.OK


def _list(project: Project, arguments: argparse.Namespace) -> int:
    from .why import changed_lines, markdown

    if arguments.markdown:
        print(markdown(project), end="")
        return Exit.OK
    rows = [
        (name, patch.name, "+{} -{}".format(*changed_lines(patch)), patch.subject)
        for name, patches in project.series.items()
        for patch in patches
    ]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, (13, 44, 8, 0), strict=True)))
    return Exit.OK
