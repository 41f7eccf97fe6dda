"""What earlier runs have left: Ray's servers and workers, vLLM's engines."""

import re
from collections.abc import Iterator

from qwen3_rl.doctor.findings import Case, Finding, ok, warning

# Their names as the kernel has them; ray::... and VLLM::... are titles that the processes give themselves.
LEFT_OVER = re.compile(r"(raylet|gcs_server|ray::\S*|VLLM::\S+|VLLMWorker\S*|EngineCore\S*)$")
SHOWN = 6


def check_processes(case: Case) -> Iterator[Finding]:
    """All users' processes are named: NPUs and ports do not ask whose they are."""
    text = case.machine.run("ps", "-eo", "pid=,user=,etime=,args=")
    found = []
    for row in (text or "").splitlines():
        cells = row.split(None, 3)
        if len(cells) == 4 and (name := LEFT_OVER.match(cells[3].split()[0].rpartition("/")[2])):
            found.append(f"{name[1]} ({cells[0]}, {cells[1]}, for {cells[2]})")
    if found:
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        yield warning(
            "left-over processes",
            ", ".join(found[:SHOWN]) + more,
            "none before a run",
            "is a run of yours at work? If not: ray stop (ends every Ray of yours on this machine)",
        )
    elif text is not None:
        yield ok("left-over processes", "none", "none before a run")
