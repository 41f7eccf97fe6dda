"""`npu-smi info` as typed objects: the table of dies, and that of the processes on them."""

import re
from dataclasses import dataclass

from qwen3_rl.doctor.machine import Machine

BUS = re.compile(r"[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]")
# "DCMI" is the library below npu-smi; its return codes are what reports quote.
FAILURE = re.compile(r"dcmi (?:module|model) init.*|.*no answer within.*", re.IGNORECASE)


@dataclass(frozen=True)
class Die:
    """One die, what torch_npu calls a device. Memory in MB."""

    npu: int
    chip: int
    name: str
    health: str
    used: int
    total: int


@dataclass(frozen=True)
class NpuProcess:
    """A process on a die; ``pid`` is the host's, also in a container."""

    npu: int
    chip: int
    pid: int
    name: str
    megabytes: int


@dataclass(frozen=True)
class NpuSmi:
    """What npu-smi knows; ``failure`` is its complaint where it could not reach the driver."""

    version: str
    dies: list[Die]
    processes: list[NpuProcess]
    failure: str = ""


def npu_smi(machine: Machine) -> NpuSmi | None:
    """None where there is no npu-smi."""
    text = machine.run("npu-smi", "info")
    return None if text is None else parse(text)


def parse(text: str) -> NpuSmi:
    """Read the tables that npu-smi 23 to 26 print for A2 (one die a card) and A3 (two).

    A die takes two rows: card and health, then chip, bus and memory. Source of the form: see tests/doctor/machines.
    """
    found = re.search(r"Version:\s*(\S+)", text)
    dies: list[Die] = []
    processes: list[NpuProcess] = []
    card: tuple[int, str, str] | None = None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 3 and BUS.fullmatch(cells[1]) and card:
            memory = re.findall(r"(\d+)\s*/\s*(\d+)", cells[2]) or [("0", "0")]
            used, total = map(int, memory[-1])
            dies.append(Die(card[0], int(cells[0].split()[0]), card[1], card[2], used, total))
        elif len(cells) == 3 and re.fullmatch(r"\d+\s+\S+", cells[0]):
            number, name = cells[0].split()
            card = int(number), name, cells[1]
        elif len(cells) in (4, 5) and re.fullmatch(r"\d+\s+\d+", cells[0]) and cells[1].isdigit():
            npu, chip = map(int, cells[0].split())
            processes.append(NpuProcess(npu, chip, int(cells[1]), cells[2], int(cells[3] or 0)))
    failure = FAILURE.search(text)
    return NpuSmi(found[1] if found else "", dies, processes, failure[0].strip() if failure else "")


def has_npu(machine: Machine) -> bool:
    """Does the machine have NPUs, as far as it can be seen from here? Each sign alone will do."""
    return bool(
        machine.names("/dev", r"davinci\d+")
        or machine.read("/usr/local/Ascend/driver/version.info")
        or machine.run("npu-smi", "info") is not None
    )


def for_npu(machine: Machine) -> bool:
    """Is this environment meant for NPUs, whether they can be seen or not?"""
    return has_npu(machine) or machine.package("torch_npu") is not None
