"""One commit from one git URL, without ever waiting long for a host that does not answer."""

import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from .errors import Cancelled, Unavailable
from .gitrepo import Checkout, GitError, set_base
from .lock import Framework

ANSWER_LIMIT = 10.0  # seconds until a host's first sign of life
STALL_LIMIT = 60.0  # seconds of silence in the middle of a transfer: hosts pause while they pack


class Network:
    """What the workers of one fetch share: whether to stop, and which hosts did not answer."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self.silent: set[str] = set()

    def stop(self) -> None:
        self._stopped.set()

    def stopped_soon(self) -> bool:
        """After a fault: was it Ctrl-C, which a terminal sends to git too, and this thread saw git's end first?"""
        return self._stopped.wait(0.2)

    def check(self) -> None:
        """Raise Cancelled once the command was told to stop."""
        if self._stopped.is_set():
            raise Cancelled


def fetch_git(
    checkout: Checkout, framework: Framework, url: str, network: Network, show: Callable[[str], None]
) -> None:
    """Fetch exactly the lock's commit from `url` into an empty checkout, tag it as the base and check it out.

    Raises Unavailable if the host is silent, refuses, or serves another commit; GitError where the disk is full.
    """
    # --depth 1: the commit without its history. --no-tags: no refs but ours. -v: so that a host's first answer shows.
    fetch = ("fetch", "-v", "--progress", "--depth", "1", "--no-tags", url, framework.commit)
    _transfer(checkout, url, network, show, *fetch)
    got = checkout.run("rev-parse", "FETCH_HEAD")
    if got != framework.commit:
        raise Unavailable(f"serves {got}, not {framework.commit}")
    set_base(checkout, got, f"git-{got}")
    if framework.submodules:
        update = ("submodule", "update", "--init", "--recursive", "--depth", "1", "--progress")
        _transfer(checkout, url, network, show, *update)


def find_tag(url: str, tag: str) -> str:
    """The commit of a tag at `url`. Raises Unavailable."""
    command = ["git", "ls-remote", url, f"refs/tags/{tag}", f"refs/tags/{tag}^{{}}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_LIMIT, check=True)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"no answer in {ANSWER_LIMIT:.0f} s") from error
    except subprocess.CalledProcessError as error:
        raise Unavailable(_reason(error.stderr.strip())) from error
    if not done.stdout:
        raise Unavailable(f"has no tag {tag}")
    return done.stdout.splitlines()[-1].split()[0]  # the last line, with ^{}, is what an annotated tag stands for


def _reason(said: str) -> str:
    found = re.search(r"^(?:fatal|error): (?:unable to access '\S*': )?(.*)", said, re.M)
    return found[1] if found else said


def _host(url: str) -> str:
    # scp-like URLs (git@host:path) and local paths have no netloc; each then counts as a host of its own.
    return urlsplit(url).netloc or url


def _transfer(checkout: Checkout, url: str, network: Network, show: Callable[[str], None], *args: str) -> None:
    host = _host(url)
    # A session of its own: no terminal to ask passwords on, and git's helpers die with it.
    process = checkout.start(
        *args, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        said = _watch(process, host, network, show)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stderr.close()
    if process.returncode:
        error = GitError(checkout.path, args, said.decode("utf-8", "replace"))
        if error.disk_full:
            raise error
        raise Unavailable(_reason(error.stderr))


def _watch(process: subprocess.Popen, host: str, network: Network, show: Callable[[str], None]) -> bytes:
    """Read what git says until it ends; returns the last of it."""
    said, limit, last = b"", ANSWER_LIMIT, time.monotonic()
    while True:
        network.check()
        if select.select([process.stderr], [], [], 0.1)[0]:
            chunk = os.read(process.stderr.fileno(), 65536)
            if not chunk:
                return said
            said, limit, last = (said + chunk)[-8000:], STALL_LIMIT, time.monotonic()
            show(chunk.decode("utf-8", "replace").replace("\r", "\n").strip().rpartition("\n")[2])
        elif limit == ANSWER_LIMIT and host in network.silent:
            raise Unavailable(f"{host} does not answer")
        elif time.monotonic() - last > limit:
            network.silent.add(host)
            raise Unavailable(f"no answer from {host} in {limit:.0f} s")
