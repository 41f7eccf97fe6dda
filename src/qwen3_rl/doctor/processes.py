"""What earlier runs have left: Ray's servers and workers, vLLM's engines."""

import os
import pwd
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from qwen3_rl.doctor.findings import Case, Finding, ok, warning
from qwen3_rl.doctor.machine import Machine

# Programs of Ray's, and the titles that its workers and vLLM's processes give themselves.
LEFT_OVER = re.compile(r"raylet|gcs_server|ray::\S*|VLLM::\S+|VLLMWorker\S*|EngineCore\S*")
SHOWN = 6


@dataclass(frozen=True)
class Process:
    """A process of whoever; ``seconds`` since its start."""

    pid: int
    name: str
    uid: int
    seconds: float

    def __str__(self) -> str:
        try:
            user = pwd.getpwuid(self.uid).pw_name
        except KeyError:
            user = f"user {self.uid}"
        return f"{self.name} ({self.pid}, {user}, for {timedelta(seconds=int(self.seconds))})"


def left_over(machine: Machine) -> list[Process]:
    """All users' processes with such names, from /proc: a slim container has no ps."""
    uptime = float((machine.read("/proc/uptime") or "0").split()[0])
    found = []
    for pid in machine.names("/proc", r"\d+"):
        program = (machine.read(f"/proc/{pid}/cmdline") or "").split("\0")[0].rpartition("/")[2]
        status, stat = machine.read(f"/proc/{pid}/status"), machine.read(f"/proc/{pid}/stat")
        if status and stat and LEFT_OVER.fullmatch(program):
            uid = re.search(r"^Uid:\s+(\d+)", status, re.MULTILINE)
            # Field 22, of which two lie before the closing parenthesis of the name.
            started = int(stat.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
            found.append(Process(int(pid), program, int(uid[1]) if uid else 0, max(0.0, uptime - started)))
    return sorted(found, key=lambda process: process.pid)


def check_processes(case: Case) -> Iterator[Finding]:
    """All users' are named: NPUs and ports do not ask whose a process is."""
    found = left_over(case.machine)
    if found:
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        yield warning(
            "left-over processes",
            ", ".join(map(str, found[:SHOWN])) + more,
            "none before a run",
            "is a run of yours at work? If not: ray stop (ends every Ray of yours on this machine)",
        )
    else:
        yield ok("left-over processes", "none", "none before a run")
