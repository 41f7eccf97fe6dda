"""`qwen3-rl doctor`: everything that is known to cost an afternoon, looked at in seconds."""

import argparse
import dataclasses
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.table import Table

from patchset.project import Project, find_project
from patchset.terminal import Terminal
from patchset.verify import attestation, one_line
from qwen3_rl.doctor.caches import check_caches, clean
from qwen3_rl.doctor.clock import check_clock
from qwen3_rl.doctor.devices import check_devices
from qwen3_rl.doctor.findings import Case, Finding, Level, warning
from qwen3_rl.doctor.machine import Machine, Recording
from qwen3_rl.doctor.network import check_interfaces, check_master, check_ports
from qwen3_rl.doctor.npu_smi import for_npu, npu_smi
from qwen3_rl.doctor.processes import check_processes
from qwen3_rl.doctor.resources import (
    check_allocator,
    check_disk,
    check_memory,
    check_open_files,
    check_shared_memory,
)
from qwen3_rl.doctor.settings import check_settings, read_overrides
from qwen3_rl.doctor.trees import check_trees
from qwen3_rl.doctor.versions import check_cann, check_driver, check_packages, check_python, toolkit
from qwen3_rl.errors import UserError
from qwen3_rl.launch.environment import check_script, source_environment

CHECKS = (
    check_python,
    check_packages,
    check_cann,
    check_driver,
    check_devices,
    check_processes,
    check_ports,
    check_interfaces,
    check_master,
    check_clock,
    check_memory,
    check_shared_memory,
    check_open_files,
    check_disk,
    check_allocator,
    check_caches,
)
MARKS = {Level.OK: "[green]ok[/]", Level.NOTE: "-", Level.WARNING: "[yellow]warning[/]", Level.FAULT: "[red]fault[/]"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument("--env-script", type=Path, help="source it first: the environment of a run")
    parser.add_argument("--train-script", type=Path, help="look for settings in it that clash")
    parser.add_argument("--master", metavar="ADDRESS", help="the cluster's head (default: MASTER_ADDR)")
    parser.add_argument("--recording", type=Path, metavar="FOLDER", help="examine a recorded machine, not this one")
    parser.add_argument("--clean-caches", action="store_true", help="remove compiled kernels and graphs, and end")
    parser.epilog = "Exit codes: 0 nothing worse than a note, 3 a warning, 4 a fault, 2 wrong usage."


def run(args: argparse.Namespace) -> int:
    machine = _machine(args)
    if args.clean_caches:
        if args.recording:
            raise UserError("--clean-caches is for this machine, not for a recording", "leave one of them out")
        clean(machine, print)
        return 0
    project = find_project(None)
    overrides = {}
    if args.train_script:
        check_script(args.train_script)
        overrides = read_overrides(args.train_script.read_text())
    master = args.master or machine.env.get("MASTER_ADDR")
    case = Case(machine, project.lock.platform, overrides, master)
    trees = None if args.recording else project
    findings = list(examine(case, trees))
    worst = max(finding.level for finding in findings)
    line = report_line(case, trees, findings)
    if args.json:
        rows = [{**dataclasses.asdict(finding), "level": finding.level.name.lower()} for finding in findings]
        print(json.dumps({"findings": rows, "worst": worst.name.lower(), "line": line}, indent=1))
    else:
        show(findings)
        print(line)
    return worst.exit_code


def _machine(args: argparse.Namespace) -> Machine:
    if args.recording:
        if not (args.recording / "environment").is_file():
            raise UserError(f"{args.recording} is no recorded machine", "it needs a file named environment")
        return Recording(args.recording)
    if args.env_script:
        check_script(args.env_script)
        return Machine(env=source_environment(args.env_script))
    return Machine(env=dict(os.environ))


def examine(case: Case, project: Project | None) -> Iterator[Finding]:
    """All findings, in the order of the table. The trees are those of ``project``; None leaves them out."""
    if project:
        yield from check_trees(project, for_npu(case.machine))
    for check in CHECKS:
        try:
            yield from check(case)
        except (ValueError, LookupError, TypeError, OSError) as error:
            # A form of some file or command that nobody has shown us must not cost the other rows.
            found = f"{type(error).__name__}: {error}"
            name = check.__name__.removeprefix("check_")
            yield warning(name, found, "a form that the doctor knows", "report it, with what the row is about")
    yield from check_settings(case, project)


def show(findings: list[Finding]) -> None:
    """The table: what was found, what is expected, the fix. Wide enough for both where it is not a terminal."""
    table = Table("check", "", "found", "expected", "fix", show_lines=False, pad_edge=False)
    for finding in findings:
        table.add_row(finding.check, MARKS[finding.level], *_plain(finding.found, finding.expected, finding.fix))
    Terminal(width=max(120, shutil.get_terminal_size((160, 24)).columns), markup=True).print(table)


def _plain(*texts: str) -> list[str]:
    """Brackets are not markup."""
    return [text.replace("[", "\\[") for text in texts]


def report_line(case: Case, project: Project | None, findings: list[Finding]) -> str:
    """One line for a bug report: the exact trees, the versions, and which checks are not well."""
    machine = case.machine
    smi, cann = npu_smi(machine), toolkit(machine)
    versions = {
        "python": machine.python(),
        **{name: machine.package(name) for name in ("torch", "torch_npu", "transformers", "ray")},
        "cann": cann and cann[0],
        "driver": smi and smi.version,
        "dies": smi and len(smi.dies),
    }
    trees = f"{one_line(attestation(project))} " if project else ""
    counts = Counter(finding.check for finding in findings if finding.level >= Level.WARNING)
    said = ",".join(name.replace(" ", "-") for name in counts) or "none"
    return trees + " ".join(f"{key}:{value or '-'}" for key, value in versions.items()) + f" findings:{said}"
