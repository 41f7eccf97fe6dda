"""Is what this Python imports the patched checkout? Answered before anything is started."""

import argparse
import importlib.util
import sys
from pathlib import Path

from patchset.project import Project, find_project
from patchset.status import FrameworkStatus, status
from qwen3_rl.errors import UserError

MODULES = {
    "verl": "verl",
    "vllm": "vllm",
    "vllm-ascend": "vllm_ascend",
    "megatron-core": "megatron.core",
    "mindspeed": "mindspeed",
}
REQUIRED = ("verl", "vllm")


def origin(module: str) -> Path | None:
    """The folder that ``import module`` would take, or None. Imports at most the parent package."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin).resolve().parent if spec and spec.origin else None


def check_import(project: Project, framework: FrameworkStatus) -> str | None:
    """One line naming the patched tree that is imported; None for an optional framework that is not installed.

    Raises UserError if the module comes from elsewhere, or its checkout is not exactly the patched one.
    """
    name = framework.name
    found = origin(MODULES[name])
    checkout = project.path(name).resolve()
    if found is None:
        if name not in REQUIRED:
            return None
        raise UserError(
            f"{sys.executable} cannot import {MODULES[name]}", "run: bash build_project.sh --target cpu (or npu)", 1
        )
    if not found.is_relative_to(checkout):
        raise UserError(
            f"`import {MODULES[name]}` takes {found}, not the patched checkout {checkout}",
            "run: bash build_project.sh --target cpu (or npu); look for an older install on PYTHONPATH",
            1,
        )
    if framework.state not in ("applied", "no patches"):
        # The files that run differ from what the patches make, or are about to.
        names = framework.edited + [file for patch in framework.patches for file in patch.files]
        detail = f" ({', '.join(sorted(set(names)))})" if names else ""
        raise UserError(
            f"the checkout {checkout} is {framework.state}, not the patched tree{detail}",
            framework.next_step or "patchset status",
            1,
        )
    version = f"{name} {framework.version}"
    return f"{version:24} {len(framework.patches)} patches  {framework.head[:12]}  {found}"


def attest(project: Project) -> list[str]:
    """A line for each framework that is imported, in the lock's order. Raises UserError (exit code 1)."""
    lines = [check_import(project, framework) for framework in status(project)]
    return [line for line in lines if line]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace) -> int:
    for line in attest(find_project(None)):
        print(line)
    return 0
