"""Are two answers equal? Asked of worker processes, so that an answer that never ends costs a bounded time.

math-verify's own time limit is a signal, which only a main thread can take; veRL calls rewards from other threads. A
worker limits itself instead (equivalence_worker): the kernel ends it at its limit, and the next question starts a
new one.
"""

import contextlib
import functools
import json
import os
import queue
import subprocess
import sys
import threading

from qwen3_rl.rewards.equivalence_worker import READY

# Of one process that calls rewards; each holds sympy, about 100 MB.
WORKERS = 4
COMMAND = [sys.executable, "-m", "qwen3_rl.rewards.equivalence_worker"]

_idle: queue.LifoQueue = queue.LifoQueue()
_slots = threading.BoundedSemaphore(WORKERS)


class Worker:
    """One process that answers one question at a time over its pipes. Raises RuntimeError if it does not start."""

    def __init__(self):
        self.process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self.process.stdout.readline() != READY:
            code = self.process.wait()
            raise RuntimeError(f"{' '.join(COMMAND)} did not start (exit code {code}); is math-verify installed?")

    def ask(self, truth: str, answer: str) -> bool | None:
        """The verdict, or None if the worker ended over it."""
        try:
            self.process.stdin.write(json.dumps([truth, answer]).encode() + b"\n")
            self.process.stdin.flush()
            reply = self.process.stdout.readline()
        except BrokenPipeError:
            return None
        return json.loads(reply) if reply.endswith(b"\n") else None

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        with contextlib.suppress(BrokenPipeError):  # the rest of a question it died over
            self.process.stdin.close()


def _take() -> Worker:
    """An idle worker that still lives, or a new one."""
    while True:
        try:
            worker = _idle.get_nowait()
        except queue.Empty:
            return Worker()
        if worker.process.poll() is None:
            return worker
        worker.close()


def _forget() -> None:
    """In a forked child: the workers are the parent's."""
    global _idle, _slots
    _idle, _slots = queue.LifoQueue(), threading.BoundedSemaphore(WORKERS)
    equivalent.cache_clear()


# The responses to one prompt often state the same answer.
@functools.lru_cache(maxsize=4096)
def equivalent(truth: str, answer: str) -> bool:
    """Is the LaTeX ``answer`` equal to the LaTeX ``truth``? False if it cannot be read or takes too long."""
    with _slots:
        worker = _take()
        verdict = worker.ask(truth, answer)
        if verdict is None:
            worker.close()
        else:
            _idle.put(worker)
    return verdict is True


os.register_at_fork(after_in_child=_forget)
