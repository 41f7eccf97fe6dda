"""Keep a cluster's servers to its own interface.

Ray 2.49's servers bind 0.0.0.0 unless the node's address is 127.0.0.1, and no setting changes that. Whoever reaches
them can run code. So what the launcher starts has a bind() preloaded (own_interface.c) that takes the node's address
instead.
"""

import shutil
import subprocess
from pathlib import Path

import psutil

from qwen3_rl.launch.place import Place
from qwen3_rl.launch.processes import descendants

SOURCE = Path(__file__).with_suffix(".c")
EVERYWHERE = ("0.0.0.0", "::")


def environment(place: Place, folder: Path, preloaded: str = "") -> dict[str, str]:
    """What a process needs in its environment; the library goes to `folder`. preloaded: LD_PRELOAD so far.

    Empty where there is no C compiler, or it fails: `everywhere` then tells what listens.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    library = folder / "own_interface.so"
    command = [compiler, "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(library), "-ldl"]
    if not compiler or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        return {}
    return {
        "LD_PRELOAD": f"{library}:{preloaded}".rstrip(":"),
        "LISTEN_ADDRESS": place.address,
        # vLLM rendezvouses at 127.0.0.1 else, where nothing listens now.
        "VLLM_LOOPBACK_IP": place.address,
    }


def everywhere() -> list[str]:
    """`NAME (process PID, port PORT)` for whatever below this process listens on every interface."""
    found = []
    for process in descendants():
        try:
            listening = [each for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
            name = process.name()
        except psutil.Error:
            continue  # it has just ended
        found += [
            f"{name} (process {process.pid}, port {each.laddr.port})"
            for each in listening
            if each.laddr.ip in EVERYWHERE
        ]
    return found
