"""Keep a cluster's servers to its own interface.

Ray 2.49's servers bind 0.0.0.0 unless the node's address is 127.0.0.1, and no setting changes that. Whoever reaches
them can run code. So what the launcher starts has a bind() preloaded (own_interface.c) that takes the node's address
instead.
"""

import ctypes
import re
import subprocess
from pathlib import Path

import psutil

from qwen3_rl.launch.place import Place
from qwen3_rl.launch.processes import descendants

SOURCE = Path(__file__).with_suffix(".c")
COMPILERS = ("cc", "gcc", "clang")
EVERYWHERE = ("0.0.0.0", "::", "::ffff:0.0.0.0")


class Unconfined(Exception):
    """Why servers can't be kept to an interface, and what to do."""


def environment(place: Place, folder: Path, preloaded: str = "") -> dict[str, str]:
    """What a process needs in its environment; the library goes to `folder`. preloaded: LD_PRELOAD so far.

    Raises Unconfined.
    """
    library = folder / "own_interface.so"
    if re.search(r"[\s:$]", str(library)):
        raise Unconfined(f"LD_PRELOAD cannot name {library}: set TMPDIR to a path without blanks, `:` and `$`")
    if not any(_compiled(compiler, library) for compiler in COMPILERS):
        raise Unconfined(f"install a C compiler: none of {', '.join(COMPILERS)} works here")
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        raise Unconfined(f"set TMPDIR to a folder that libraries may be loaded from: {error}") from None
    return {
        "LD_PRELOAD": f"{library}:{preloaded}".rstrip(":"),
        "QWEN3_RL_LISTEN_ADDRESS": place.address,
        # vLLM rendezvouses at 127.0.0.1 else, where nothing listens now.
        "VLLM_LOOPBACK_IP": place.address,
        # Ray's processes look for their metrics agent there.
        "RAY_enable_metrics_collection": "0",
    }


def _compiled(compiler: str, library: Path) -> bool:
    command = [compiler, "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(library), "-ldl"]
    try:
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def everywhere() -> list[str]:
    """`NAME (process PID, port PORT)` for whatever below this process listens on every interface."""
    found = []
    for process in descendants():
        try:
            listening = [each for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
            name = process.name()
        except psutil.Error:
            continue  # it has just ended
        ports = [each.laddr.port for each in listening if each.laddr.ip in EVERYWHERE]
        found += [f"{name} (process {process.pid}, port {port})" for port in ports]
    return found
