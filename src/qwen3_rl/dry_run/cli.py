"""`qwen3-rl dry-run TRAIN_SCRIPT [ENV_SCRIPT] [OVERRIDE...]`."""

import argparse
import os
from importlib.util import find_spec
from pathlib import Path

from patchset.project import find_project
from qwen3_rl.dry_run import errors
from qwen3_rl.dry_run.command import command_of
from qwen3_rl.errors import UserError
from qwen3_rl.launch.environment import check_script, source_environment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("train_script", type=Path, metavar="TRAIN_SCRIPT")
    parser.add_argument("env_script", nargs="?", metavar="ENV_SCRIPT", help="sourced first; overrides may follow")
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="passed to TRAIN_SCRIPT")
    parser.add_argument("--die-gib", type=float, help="memory of a die (default: 64 for npu, 96 for cuda)")
    parser.add_argument("--quiet", action="store_true", help="findings only, without the resolved configuration")


def run(args: argparse.Namespace) -> int:
    if find_spec("verl") is None:
        raise UserError("veRL is not installed here", "bash build_project.sh --target cpu (or npu)")
    from qwen3_rl.dry_run.result import dry_run, print_result

    check_script(args.train_script)
    overrides = list(args.overrides)
    environment = dict(os.environ)
    if args.env_script and "=" in args.env_script:
        overrides.insert(0, args.env_script)
    elif args.env_script:
        check_script(Path(args.env_script))
        environment = source_environment(Path(args.env_script))
    command = command_of(args.train_script, environment, tuple(overrides))
    die = args.die_gib * 2**30 if args.die_gib else None
    result = dry_run(command, find_project(None).frameworks, die)
    print_result(result, configuration=not args.quiet)
    return 1 if errors(result.findings) else 0
