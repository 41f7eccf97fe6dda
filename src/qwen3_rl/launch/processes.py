"""The processes of one run: all of them are found again, and only they are ended."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable

import psutil

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Make this process the parent of every descendant that loses its own (Linux subreaper).

    Ray's workers and vLLM's engines outlive the processes that started them; so they stay children of ours, and
    "what we started" is simply the tree below this process.
    """
    if _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _die_with_parent() -> None:
    # Should the launcher be killed -9, its direct children are told to end.
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


_started: list[subprocess.Popen] = []


def start(argv: list[str], env: dict[str, str], stdout) -> subprocess.Popen:
    """Start ``argv`` in a session of its own: Ctrl-C at the terminal reaches the launcher alone, which then decides."""
    process = subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_die_with_parent,
    )
    _started.append(process)
    return process


def descendants() -> list[psutil.Process]:
    """Every live process below this one."""
    found = psutil.Process().children(recursive=True)
    return [process for process in found if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def signal_group(process: subprocess.Popen, number: signal.Signals) -> None:
    """Signal a child that `start` made, with its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def end_descendants(patience: float) -> None:
    """End everything that is left below this process."""
    end_all(descendants, patience)


def end_all(find: Callable[[], list[psutil.Process]], patience: float) -> None:
    """SIGTERM to all that `find` finds, then SIGKILL after ``patience`` seconds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in find():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        deadline = time.monotonic() + patience
        while find() and time.monotonic() < deadline:
            reap_orphans()
            time.sleep(0.05)
    reap_orphans()


def reap_orphans() -> None:
    """Collect adopted children that have ended; those of `start` are collected by their own objects."""
    own = {process.pid for process in _started if process.poll() is None}
    for child in psutil.Process().children():
        if child.pid not in own:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, os.WNOHANG)
