"""Several hosts on one machine: each with a network, PID, mount, UTS and IPC namespace, joined by a bridge.

A host's processes, temporary folder, shared memory and hostname are its own, so stopping one host's Ray cannot reach
another's. Needs root and iproute2.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NETWORK = "10.99.0"


def usable() -> str:
    """Why hosts can't be made here; empty if they can."""
    if os.geteuid() != 0:
        return "namespaces need root"
    if not shutil.which("ip"):
        return "iproute2 is not installed"
    tried = subprocess.run(["unshare", "--net", "--pid", "--fork", "--mount-proc", "true"], capture_output=True)
    return "" if tried.returncode == 0 else f"no namespaces here: {tried.stderr.decode(errors='replace').strip()}"


def sh(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, text=True)


@dataclass
class Host:
    """A running host: its init process and its own temporary folder, seen from outside."""

    name: str
    address: str
    init: subprocess.Popen
    tmp: Path

    def enter(self, argv: Sequence[str], env: dict[str, str], cwd: Path) -> subprocess.Popen:
        """Start a command there; its output is piped."""
        inside = ["nsenter", f"--target={self.pid}", "-m", "-p", "-n", "-u", "-i", f"--wd={cwd}", *argv]
        return subprocess.Popen(
            inside, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, *argv: str) -> str:
        process = self.enter(argv, dict(os.environ), Path("/"))
        return process.communicate()[0]

    @property
    def pid(self) -> int:
        """The host's first process, as the machine counts."""
        children = Path(f"/proc/{self.init.pid}/task/{self.init.pid}/children").read_text().split()
        return int(children[0])

    def processes(self) -> list[str]:
        """The command lines of all that runs there, but for its init."""
        listed = self.run("ps", "-eo", "pid=,args=", "--no-headers").splitlines()
        own = ("sleep infinity", "ps -eo pid=,args= --no-headers")
        return [line.strip() for line in listed if line.split()[0] != "1" and not line.endswith(own)]

    def listening(self) -> set[str]:
        """Local addresses of TCP sockets that listen, without the port; those of IPv4 as such on IPv6 sockets too."""
        listed = self.run("ss", "-Hltn").splitlines()
        return {line.split()[3].rpartition(":")[0].strip("[]").removeprefix("::ffff:") for line in listed}

    def cut(self) -> None:
        """Take its network away."""
        sh("ip", "-n", self.name, "link", "set", "eth0", "down")

    def kill(self) -> None:
        """As if the power went."""
        os.kill(self.pid, signal.SIGKILL)
        self.init.wait(10)


@contextmanager
def hosts(count: int, folder: Path) -> Iterator[list[Host]]:
    """Bring hosts up at 10.99.0.1 and on; all is gone afterwards."""
    tag = f"q{os.getpid()}"
    bridge = f"{tag}b"
    made, namespaces = [], [bridge]
    try:
        sh("ip", "netns", "add", bridge)
        sh("ip", "-n", bridge, "link", "add", "br0", "type", "bridge")
        sh("ip", "-n", bridge, "link", "set", "br0", "up")
        for number in range(1, count + 1):
            name = f"{tag}h{number}"
            sh("ip", "netns", "add", name)
            namespaces.append(name)
            peer = ["type", "veth", "peer", "name", "eth0", "netns", name]
            sh("ip", "-n", bridge, "link", "add", f"v{number}", *peer)
            sh("ip", "-n", bridge, "link", "set", f"v{number}", "master", "br0", "up")
            sh("ip", "-n", name, "addr", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
            for link in ("eth0", "lo"):
                sh("ip", "-n", name, "link", "set", link, "up")
            tmp = folder / f"host{number}"
            tmp.mkdir()
            (folder / f"hosts{number}").write_text("127.0.0.1 localhost\n")
            setup = (
                f"hostname h{number} && mount --bind {folder}/hosts{number} /etc/hosts && mount --bind {tmp} /tmp"
                # Not exec: bash as the first process collects the orphans.
                " && mount -t tmpfs none /dev/shm && echo up; sleep infinity & wait"
            )
            unshare = ["unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child"]
            init = subprocess.Popen(
                ["ip", "netns", "exec", name, *unshare, "--mount-proc", "--uts", "--ipc", "bash", "-c", setup],
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            made.append(Host(name, f"{NETWORK}.{number}", init, tmp))
            assert init.stdout.readline() == "up\n"
        yield made
    finally:
        for host in made:
            if host.init.poll() is None:
                host.init.kill()  # --kill-child takes the host's processes with it
            host.init.wait(10)
        for name in namespaces:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
