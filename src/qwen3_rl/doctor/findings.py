"""What a check says."""

from dataclasses import dataclass
from enum import IntEnum

from patchset.lock import Platform
from qwen3_rl.doctor.machine import Machine


class Level(IntEnum):
    """How bad a finding is; the worst one decides the exit code."""

    OK = 0
    NOTE = 1  # does not apply here, or is worth knowing
    WARNING = 2  # a run may suffer
    FAULT = 3  # a run will fail, or be wrong

    @property
    def exit_code(self) -> int:
        """0, or for a warning 3 and for a fault 4: 1 and 2 are Python's own and wrong usage."""
        return {Level.WARNING: 3, Level.FAULT: 4}.get(self, 0)


@dataclass(frozen=True)
class Finding:
    """One row of the table; ``fix`` is the next step, empty where there is nothing to do."""

    check: str
    level: Level
    found: str
    expected: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Case:
    """What the checks look at: a machine, what the lock says of it, and what the run's scripts set.

    ``overrides`` are the Hydra keys of a train script with their values, None where a shell variable decides.
    ``master`` is the address of the cluster's head, if there is one.
    """

    machine: Machine
    platform: Platform
    overrides: dict[str, str | None]
    master: str | None = None

    @property
    def several(self) -> bool:
        """Is the run one of several machines?"""
        return self.master is not None or self.machine.env.get("NNODES", "1") != "1"


def ok(check: str, found: str, expected: str = "") -> Finding:
    return Finding(check, Level.OK, found, expected)


def note(check: str, found: str, expected: str = "", fix: str = "") -> Finding:
    return Finding(check, Level.NOTE, found, expected, fix)


def warning(check: str, found: str, expected: str, fix: str) -> Finding:
    return Finding(check, Level.WARNING, found, expected, fix)


def fault(check: str, found: str, expected: str, fix: str) -> Finding:
    return Finding(check, Level.FAULT, found, expected, fix)
