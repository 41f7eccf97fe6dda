"""What a bug report needs: the platform, and one line that names the exact patched trees."""

import argparse
import os
import platform
from importlib.metadata import PackageNotFoundError, version

from patchset.project import find_project
from patchset.verify import attestation, one_line

PACKAGES = ("torch", "torch_npu", "transformers", "ray")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace) -> int:
    project = find_project(None)
    said = attestation(project)
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
