"""A Ray of our own on this machine, the head or one that joins it: checked for room before, started, and stopped."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import psutil

from qwen3_rl.errors import UserError
from qwen3_rl.launch import processes
from qwen3_rl.launch.place import Place
from qwen3_rl.launch.settings import Settings

START_SECONDS = 60.0
STARTED = "Ray runtime started"
SERVERS = ("gcs_server", "raylet")


def check_room(settings: Settings, place: Place) -> None:
    """Raises UserError if this user's Ray runs on the machine already, or if the head's port is taken.

    A second raylet would offer the same NPUs a second time, and Ray itself takes 38 s to report a taken port.
    """
    running = []
    for process in psutil.process_iter(["name", "uids", "create_time", "status"]):
        info = process.info
        if info["name"] not in SERVERS or info["status"] == psutil.STATUS_ZOMBIE:
            continue
        if info["uids"] and info["uids"].real == os.getuid():
            since = datetime.fromtimestamp(info["create_time"])
            running.append(f"{info['name']} (process {process.pid}, since {since:%H:%M:%S})")
    if running:
        raise UserError(
            f"a Ray of yours is running on this machine: {', '.join(running)}",
            "wait for its job; if it is left over from an earlier run of this launcher: bash ray_start_npu.sh "
            "--stop-mine; `ray stop` ends every Ray of yours here",
        )
    if not place.is_head:
        return
    with socket.socket(socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((place.address, settings.ray_port))
        except OSError as error:
            raise UserError(
                f"port {settings.ray_port} cannot be used for Ray: {error.strerror}{_holder(settings.ray_port)}",
                "set RAY_PORT to another one",
            ) from None


def _holder(port: int) -> str:
    for connection in psutil.net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
            return f" (process {connection.pid}, {psutil.Process(connection.pid).name()}, listens on it)"
    return ""


def head_address(settings: Settings, place: Place) -> str:
    """HOST:PORT of the head's Ray."""
    return f"{place.head}:{settings.ray_port}"


def wait_for_head(settings: Settings, place: Place, deadline: float) -> None:
    """Until the head's port answers. Raises UserError after `deadline` (of time.monotonic)."""
    pause, why = 0.25, ""
    while True:
        try:
            socket.create_connection((place.head, settings.ray_port), timeout=5).close()
            return
        except OSError as error:
            why = error.strerror or str(error)
        if time.monotonic() + pause > deadline:
            raise UserError(
                f"no head answers at {head_address(settings, place)} (MASTER_ADDR, RAY_PORT) within "
                f"{settings.ray_join_seconds} s: {why}",
                "check both settings, and that ray_start_npu.sh runs on the head; RAY_JOIN_SECONDS waits longer",
                1,
            )
        time.sleep(pause)
        pause = min(2 * pause, 5.0)


def start(settings: Settings, place: Place, env: dict[str, str], folder: Path, log: Path) -> subprocess.Popen:
    """Start Ray here and wait until it serves. Raises UserError with the end of ``log`` else."""
    argv = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
        f"--node-ip-address={place.address}",
        f"--resources={json.dumps({'NPU': settings.npus_per_node})}",
        "--disable-usage-stats",
    ]
    if place.is_head:
        argv += ["--head", f"--port={settings.ray_port}", f"--temp-dir={folder / 'ray'}", "--include-dashboard=false"]
    else:
        argv.append(f"--address={head_address(settings, place)}")
    if settings.ray_num_cpus:
        argv.append(f"--num-cpus={settings.ray_num_cpus}")
    if settings.ray_object_store_bytes:
        argv.append(f"--object-store-memory={settings.ray_object_store_bytes}")
    with log.open("wb") as sink:
        node = processes.start(argv, env, sink)
    deadline = time.monotonic() + START_SECONDS
    while STARTED not in log.read_text(errors="replace"):
        if node.poll() is not None or time.monotonic() > deadline:
            why = f"ended with exit code {node.returncode}" if node.returncode is not None else "is not up"
            tail = "\n".join(f"    {line}" for line in log.read_text(errors="replace").splitlines()[-8:])
            raise UserError(f"Ray {why} after {START_SECONDS:.0f} s at most\n{tail}", f"read {log}", 1)
        time.sleep(0.1)
    return node


def stop(node: subprocess.Popen) -> None:
    """`ray start --block` takes its daemons down on SIGTERM (measured: within a second); what stays is killed."""
    processes.signal_group(node, signal.SIGTERM)
    try:
        node.wait(15)
    except subprocess.TimeoutExpired:
        processes.signal_group(node, signal.SIGKILL)
        node.wait()
