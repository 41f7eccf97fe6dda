"""Where facts come from: this machine, or a recording of another one. The checks cannot tell which.

A recording is a folder: files as they lay below `/`, `commands/NAME` with what a command printed, `packages` (as
`pip freeze` prints them) and `environment` (KEY=VALUE lines). What it lacks, that machine lacked.
"""

import os
import platform
import re
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

COMMAND_SECONDS = 4.0


@dataclass(frozen=True)
class Machine:
    """Files below ``root``, and the environment of the run."""

    root: Path = Path("/")
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    _said: dict[tuple[str, ...], str | None] = field(default_factory=dict, repr=False)

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def read(self, name: str) -> str | None:
        """The text of a file, None where it is missing or cannot be read."""
        try:
            return self.path(name).read_text(errors="replace")
        except OSError:
            return None

    def names(self, folder: str, pattern: str) -> list[str]:
        """The names in ``folder`` that match the whole of a regular expression, sorted."""
        try:
            return sorted(each.name for each in self.path(folder).iterdir() if re.fullmatch(pattern, each.name))
        except OSError:
            return []

    def run(self, *argv: str) -> str | None:
        """What a command prints on both channels, asked once; None where it is missing.

        One that does not end in time is left behind killed: a process in the driver may not even die.
        """
        if argv not in self._said:
            self._said[argv] = _run(argv)
        return self._said[argv]

    def package(self, name: str) -> str | None:
        """The version of an installed distribution."""
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    def python(self) -> str:
        return platform.python_version()

    def route_to(self, address: str) -> str | None:
        """This machine's own address on the way to ``address``, as the kernel routes; None where there is no route.

        Nothing is sent: a UDP socket's connect only looks the route up. Raises socket.gaierror for an unknown name.
        """
        family, kind, _, _, target = socket.getaddrinfo(address, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            try:
                probe.connect(target)
            except OSError:
                return None
            return probe.getsockname()[0]

    @property
    def home(self) -> str:
        return self.env.get("HOME", "/root")


def _run(argv: tuple[str, ...]) -> str | None:
    try:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
    except OSError:
        return None
    try:
        return process.communicate(timeout=COMMAND_SECONDS)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return f"{argv[0]}: no answer within {COMMAND_SECONDS:.0f} s"


class Recording(Machine):
    """A machine as a folder."""

    def __init__(self, folder: Path):
        text = (folder / "environment").read_text()
        env = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        super().__init__(folder, env)

    def run(self, *argv: str) -> str | None:
        return self.read(f"commands/{command_file(argv)}")

    def package(self, name: str) -> str | None:
        for line in (self.read("packages") or "").splitlines():
            found, _, its_version = line.partition("==")
            if _canonical(found) == _canonical(name):
                return its_version.strip()
        return None

    def python(self) -> str:
        return self.package("python") or "unknown"

    def route_to(self, address: str) -> str | None:
        return (self.run("route", address) or "").strip() or None


def command_file(argv: tuple[str, ...]) -> str:
    """The file below commands/ that holds a command's output: `npu-smi info` is npu-smi-info."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", " ".join(argv)).strip("-")


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()
