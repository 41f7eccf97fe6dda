"""A Ray of our own on this machine: checked for room before, started, and stopped."""

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
from qwen3_rl.launch.settings import Settings

LOOPBACK = "127.0.0.1"
# With this variable Ray keeps to the loopback interface (ray/_private/services.py, get_node_ip_address); otherwise it
# replaces 127.0.0.1 by an address of the machine and listens on all of them, and a client looks for it there.
ENV = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
START_SECONDS = 60.0
STARTED = "Ray runtime started"
SERVERS = ("gcs_server", "raylet")


def check_room(settings: Settings) -> None:
    """Raises UserError if this user's Ray runs on the machine already, or if the port is taken.

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
            "wait for its job, or end it: `ray stop` ends every Ray of yours here",
        )
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, settings.ray_port))
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


def start(settings: Settings, env: dict[str, str], folder: Path, log: Path) -> subprocess.Popen:
    """Start the head, with ENV in ``env``, and wait until it serves. Raises UserError with the end of ``log`` else."""
    argv = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
        f"--node-ip-address={LOOPBACK}",
        f"--port={settings.ray_port}",
        f"--resources={json.dumps({'NPU': settings.npus_per_node})}",
        f"--temp-dir={folder / 'ray'}",
        "--include-dashboard=false",
        "--disable-usage-stats",
    ]
    if settings.ray_num_cpus:
        argv.append(f"--num-cpus={settings.ray_num_cpus}")
    if settings.ray_object_store_bytes:
        argv.append(f"--object-store-memory={settings.ray_object_store_bytes}")
    with log.open("wb") as sink:
        head = processes.start(argv, env, sink)
    deadline = time.monotonic() + START_SECONDS
    while STARTED not in log.read_text(errors="replace"):
        if head.poll() is not None or time.monotonic() > deadline:
            why = f"ended with exit code {head.returncode}" if head.returncode is not None else "is not up"
            tail = "\n".join(f"    {line}" for line in log.read_text(errors="replace").splitlines()[-8:])
            raise UserError(f"Ray {why} after {START_SECONDS:.0f} s at most\n{tail}", f"read {log}", 1)
        time.sleep(0.1)
    return head


def stop(head: subprocess.Popen) -> None:
    """`ray start --block` takes its daemons down on SIGTERM (measured: within a second); what stays is killed."""
    processes.signal_group(head, signal.SIGTERM)
    try:
        head.wait(15)
    except subprocess.TimeoutExpired:
        processes.signal_group(head, signal.SIGKILL)
        head.wait()
