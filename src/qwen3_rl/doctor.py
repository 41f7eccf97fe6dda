"""What a bug report needs: the platform, and one line that names the exact patched trees."""

import argparse
import os
import platform
from importlib.metadata import PackageNotFoundError, version

from patchset.errors import PatchsetError
from patchset.project import find_project
from patchset.verify import attestation, one_line
from qwen3_rl.errors import UserError

PACKAGES = ("torch", "torch_npu", "transformers", "ray")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace) -> int:
    try:
        project = find_project(None)
        said = attestation(project)
    except PatchsetError as error:
        raise UserError(error.what, error.next_step) from error
    print(f"{platform.platform()}, {os.cpu_count()} CPUs")
    print(f"python {platform.python_version()} (built for {project.lock.platform.python})")
    for package in PACKAGES:
        print(f"{package} {_version(package)} (built for {getattr(project.lock.platform, package)})")
    print(one_line(said))
    return 0


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
