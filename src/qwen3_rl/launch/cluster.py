"""Both ends of a run on several machines: the head's line to `qwen3_rl.launch.nodes`, and the loop of the others."""

import json
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

from qwen3_rl.errors import UserError
from qwen3_rl.launch import ray_node
from qwen3_rl.launch.place import Place
from qwen3_rl.launch.scratch import Scratch
from qwen3_rl.launch.settings import Settings

ASK_SECONDS = 120  # for all nodes together
TELL_SECONDS = 20
HEAD_CHECK_SECONDS = 5.0
VERDICT = "verdict.json"  # how the head's run has ended, in the temporary folder of each other node's launcher
HEAD_LOST_SECONDS = 30.0  # without an answer from the head's port: the network is gone, or the head is


class Asker:
    """The process that asks the nodes. Made early: to import Ray takes as long as to start it."""

    def __init__(self, env: dict[str, str]):
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [sys.executable, "-m", "qwen3_rl.launch.nodes"],
            env=env,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            bufsize=0,  # or `select` would not see what was read ahead
            start_new_session=True,
        )

    def check(self, settings: Settings, place: Place, say, log: Path) -> None:
        """Wait for all nodes and compare them; `say` gets each line of it. Raises UserError for any fault."""
        expected = (settings.node_addrs or "").replace(",", " ").split()
        self._send(
            count=place.nnodes,
            npus=settings.npus_per_node,
            seconds=settings.ray_join_seconds,
            expected=expected,
            address=place.address,
        )
        deadline = time.monotonic() + ASK_SECONDS + (0 if place.alone else settings.ray_join_seconds)
        while line := self._line(deadline - time.monotonic()):
            if not line.strip():
                return
            say(line.rstrip())
        if self._process.poll() is None and time.monotonic() >= deadline:
            raise UserError(
                f"the nodes of the cluster did not say within {ASK_SECONDS} s what they import", f"read {log}", 1
            )
        said = self._process.communicate()[1].decode(errors="replace").strip()
        what, told, next_step = said.rpartition("\n next: ")
        if not told:
            raise UserError(f"the nodes of the cluster could not be asked:\n{said}", f"read {log}", 1)
        raise UserError(what.removeprefix("error: "), next_step, 1)

    def news(self) -> str | None:
        """What it has said since: that a node has left. Does not wait."""
        line = self._line(0)
        return line.strip() if line else None

    def tell(self, code: int, why: str) -> None:
        """Let the other nodes' launchers know how the run has ended, and end."""
        self._send(code=code, why=why)
        try:
            self._process.wait(TELL_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, **message) -> None:
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass  # it has ended, or was heard to its end; whoever reads next finds out why

    def _line(self, seconds: float) -> str | None:
        """None at the end, or after so many seconds. Its lines are short and written whole."""
        if not select.select([self._process.stdout], [], [], max(seconds, 0))[0]:
            return None
        return self._process.stdout.readline().decode(errors="replace") or None


def follow(settings: Settings, place: Place, node: subprocess.Popen, scratch: Scratch) -> tuple[int, str]:
    """Wait, on a node that is not the head, for the end of the run; returns its exit code and what to say."""
    verdict = scratch.folder / VERDICT
    answered = checked = time.monotonic()
    while True:
        gone = node.poll() is not None
        if verdict.exists():
            said = json.loads(verdict.read_text())
            return said["code"], f"the head ended the run with exit code {said['code']}: {said['why']}"
        if gone:
            return (
                1,
                f"Ray here ended ({node.returncode}): the head {place.head} is gone, or has cut us off",
            )
        now = time.monotonic()
        if now - checked > HEAD_CHECK_SECONDS:
            checked = now
            if _answers(place.head, settings.ray_port):
                answered = now
            elif now - answered > HEAD_LOST_SECONDS:
                return 1, f"the head {place.head} has not answered for {now - answered:.0f} s"
        scratch.sample()
        time.sleep(0.5)


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=2).close()
    except OSError:
        return False
    return True


def join(settings: Settings, place: Place, env: dict[str, str], folder: Path, log: Path) -> subprocess.Popen:
    """Start Ray here once the head answers; tries again until RAY_JOIN_SECONDS are over. Raises UserError then."""
    deadline = time.monotonic() + settings.ray_join_seconds
    env = {**env, "RAY_NUM_REDIS_GET_RETRIES": "1"}
    while True:
        ray_node.wait_for_head(settings, place, deadline)
        try:
            return ray_node.start(settings, place, env, folder, log)
        except UserError:
            # The port may be another program's, or the head was just ending.
            if time.monotonic() > deadline:
                raise
            time.sleep(5)
