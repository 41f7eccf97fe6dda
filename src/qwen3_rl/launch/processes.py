"""The processes of one run: all of them are found again, and only they are ended."""

import ctypes
import os
import signal
import subprocess
import time

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


def start(argv: list[str], env: dict[str, str], stdout) -> subprocess.Popen:
    """Start ``argv`` in a session of its own: Ctrl-C at the terminal reaches the launcher alone, which then decides."""
    return subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_die_with_parent,
    )


def descendants() -> list[psutil.Process]:
    """Every live process below this one."""
    found = psutil.Process().children(recursive=True)
    return [process for process in found if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def end_group(process: subprocess.Popen, first: signal.Signals, patience: float) -> None:
    """End a child that `start` made, with its group: ``first``, then SIGKILL after ``patience`` seconds."""
    for number in (first, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(patience)
            break
        except subprocess.TimeoutExpired:
            continue


def end_descendants(patience: float) -> None:
    """End everything that is left below this process: SIGTERM, then SIGKILL after ``patience`` seconds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in descendants():
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue
        deadline = time.monotonic() + patience
        while descendants() and time.monotonic() < deadline:
            _reap()
            time.sleep(0.05)
    _reap()


def _reap() -> None:
    """Collect adopted children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
