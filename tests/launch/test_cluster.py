"""ray_start_npu.sh on several hosts, which are namespaces of this machine: a real Ray cluster, real faults."""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from .hosts import Host, hosts, usable

ROOT = Path(__file__).parents[2]
pytest.importorskip("ray", reason="needs build_project.sh --target cpu")
pytestmark = pytest.mark.skipif(bool(usable()), reason=usable() or "usable")

COUNT = """python -c '
import ray
ray.init()
print("NPU in all:", ray.cluster_resources()["NPU"])
'
"""
WAIT = 'touch "$RUN_FOLDER/runs"; exec sleep 300'


@dataclass
class Launch:
    """A launcher on one host; `output` once it has ended."""

    host: Host
    process: subprocess.Popen
    output: str = ""

    def finish(self, timeout: float = 120) -> int:
        self.output, _ = self.process.communicate(timeout=timeout)
        return self.process.returncode


@dataclass
class Lab:
    """Hosts, and the launchers on them, which all get the same command."""

    hosts: list[Host]
    folder: Path
    launches: list[Launch] = field(default_factory=list)

    def start(self, host: Host, script: str, **env: str) -> Launch:
        train, exports = self.folder / "train.sh", self.folder / "env.sh"
        train.write_text(script)
        exports.write_text("export NPUS_PER_NODE=1 RAY_NUM_CPUS=1 RAY_OBJECT_STORE_BYTES=100000000\n")
        settings = {
            "NNODES": str(len(self.hosts)),
            "MASTER_ADDR": self.hosts[0].address,
            "OUTPUTS_DIR": str(self.folder / "outputs"),
            "RUN_NAME": "run",
            "RAY_JOIN_SECONDS": "60",
            "TMPDIR": "/tmp",
        }
        argv = ["bash", str(ROOT / "ray_start_npu.sh"), str(train), str(exports)]
        launch = Launch(host, host.enter(argv, {**os.environ, **settings, **env}, self.folder))
        self.launches.append(launch)
        return launch

    def wait_for(self, done: Callable[[], bool], seconds: float = 90) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            ended = [each for each in self.launches if each.process.poll() is not None]
            assert not ended, [each.process.communicate()[0] for each in ended]
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def running(self) -> bool:
        return (self.folder / "outputs/run/runs").exists()

    def assert_nothing_left(self, *gone: Host) -> None:
        for host in self.hosts:
            if host not in gone:
                deadline = time.monotonic() + 10
                while (left := host.processes()) and time.monotonic() < deadline:
                    time.sleep(0.2)
                assert not left
                assert not [path.name for path in host.tmp.iterdir() if not path.name.endswith(".lock")]
        for launch in self.launches:
            assert "Traceback" not in launch.output


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    # Not below /tmp, which every host has for itself.
    folder = Path(tempfile.mkdtemp(prefix="qwen3-rl-hosts-", dir="/var/tmp"))
    with hosts(getattr(request, "param", 2), folder) as made:
        yield Lab(made, folder)
    shutil.rmtree(folder)


@pytest.mark.parametrize("lab", [3], indirect=True)
def test_three_nodes_run_a_script(lab: Lab) -> None:
    """The workers come first."""
    *workers, head = [lab.start(host, COUNT) for host in reversed(lab.hosts)]
    assert [each.finish() for each in lab.launches[::-1]] == [0, 0, 0], [each.output for each in lab.launches]
    assert re.search(r"node 3 of 3: h\d \(10\.99\.0\.\d\), 1 NPU", head.output)
    assert "3 node(s) import the same trees: lock:" in head.output
    assert "NPU in all: 3.0" in head.output
    for worker in workers:
        assert f"joined the head at 10.99.0.1:29444 as {worker.host.address}" in worker.output
        assert "exit code 0" in worker.output
        assert (lab.folder / f"outputs/run-{worker.host.address}/ray.log").is_file()
    lab.assert_nothing_left()


def test_a_node_that_comes_late_and_a_script_that_exits_3(lab: Lab) -> None:
    head = lab.start(lab.hosts[0], "exit 3", LISTEN_EVERYWHERE="1")
    lab.wait_for(lambda: lab.hosts[0].run("ss", "-Hltn", "sport = :29444") != "")
    time.sleep(5)
    assert "*" in lab.hosts[0].listening()
    for name in ("cc", "gcc", "clang"):
        (lab.folder / name).write_text("#!/bin/sh\nexit 1\n")  # a compiler that fails
        (lab.folder / name).chmod(0o755)
    worker = lab.start(lab.hosts[1], "exit 3", PATH=f"{lab.folder}:{os.environ['PATH']}")
    assert (head.finish(), worker.finish()) == (3, 3), head.output + worker.output
    assert "the head ended the run with exit code 3: train.sh ended" in worker.output
    assert "warning: open on every interface, not on eth0 alone: raylet (process" in worker.output
    assert " next: install a C compiler: none of cc, gcc, clang works here" in worker.output
    assert "open on every interface" not in head.output
    assert (lab.folder / "outputs/run/ray-logs").is_dir()
    lab.assert_nothing_left()


def test_ctrl_c_on_the_head_and_what_listens_before(lab: Lab) -> None:
    worker, head = lab.start(lab.hosts[1], WAIT), lab.start(lab.hosts[0], WAIT)
    lab.wait_for(lab.running)
    for host in lab.hosts:
        assert host.listening() <= {"127.0.0.1", host.address}, host.run("ss", "-Hltnp")
        assert host.run("ss", "-Hltn", "sport = :8260 or sport = :8265") == ""  # no dashboard
    launcher = lab.hosts[0].run("pgrep", "-f", "qwen3_rl.launch ").split()[0]
    lab.hosts[0].run("kill", "-INT", launcher)
    assert (head.finish(60), worker.finish(60)) == (130, 130), head.output + worker.output
    assert "the head ended the run with exit code 130: ended by SIGINT" in worker.output
    lab.assert_nothing_left()


def test_a_node_that_never_comes(lab: Lab) -> None:
    head = lab.start(lab.hosts[0], "exit 0", RAY_JOIN_SECONDS="5", NODE_ADDRS="10.99.0.1, 10.99.0.2")
    assert head.finish() == 1
    assert "1 of 2 nodes (NNODES) joined within 5 s: h1 (10.99.0.1); missing: 10.99.0.2" in head.output
    lab.assert_nothing_left()


def test_a_node_that_dies_in_the_middle(lab: Lab) -> None:
    env = {"NODE_LOST_SECONDS": "5"}
    lab.start(lab.hosts[1], WAIT, **env)
    head = lab.start(lab.hosts[0], WAIT, **env)
    lab.wait_for(lab.running)
    lab.hosts[1].kill()
    assert head.finish(90) == 1
    assert "node h2 (10.99.0.2) has left the cluster; the train script has 5 s to end by itself" in head.output
    lab.assert_nothing_left(lab.hosts[1])


@pytest.mark.parametrize("how", ["its launcher", "the whole host", "the network"])
def test_a_head_that_is_gone(lab: Lab, how: str) -> None:
    env = {"NODE_LOST_SECONDS": "5"}
    worker, head = lab.start(lab.hosts[1], WAIT, **env), lab.start(lab.hosts[0], WAIT, **env)
    lab.wait_for(lab.running)
    start = time.monotonic()
    if how == "its launcher":
        lab.hosts[0].run("pkill", "-KILL", "-f", "qwen3_rl.launch ")
    elif how == "the whole host":
        lab.hosts[0].kill()
    else:
        lab.hosts[1].cut()
    assert worker.finish(90) == 1, worker.output
    assert time.monotonic() - start < 90
    assert "10.99.0.1 is gone" in worker.output or "10.99.0.1 has not answered for" in worker.output
    if how == "the network":
        assert head.finish(150) == 1
    if how == "its launcher":  # it could not remove its folder: the next launcher does
        stopped = lab.hosts[0].run("bash", str(ROOT / "ray_start_npu.sh"), "--stop-mine")
        assert "nothing is left" in stopped or "ending process" in stopped
    lab.assert_nothing_left(*([lab.hosts[0]] if how == "the whole host" else []))


def test_a_mixed_tree(lab: Lab) -> None:
    other = lab.folder / "stack.toml"
    other.write_text((ROOT / "patches/stack.toml").read_text() + "# another state\n")
    lab.hosts[1].run("mount", "--bind", str(other), str(ROOT / "patches/stack.toml"))
    worker, head = lab.start(lab.hosts[1], "exit 0", OMP_NUM_THREADS="3"), lab.start(lab.hosts[0], "exit 0")
    assert (head.finish(), worker.finish()) == (1, 1), head.output + worker.output
    for said in (head.output, worker.output):
        assert "the machines of this cluster do not run the same trees" in said
        assert re.search(r"h2 \(10\.99\.0\.2\): lock is \w+, on the head it is \w+", said)
        assert "h2 (10.99.0.2): OMP_NUM_THREADS is 3, on the head it is" in said
    lab.assert_nothing_left()


def test_settings_that_do_not_fit(lab: Lab) -> None:
    """Each ends before anything is started."""
    head, other = lab.hosts
    server = head.enter(["python3", "-m", "http.server", "29444"], dict(os.environ), Path("/"))
    lab.wait_for(lambda: head.run("ss", "-Hltn", "sport = :29444") != "")
    for host, env, code, said in (
        (other, {"SOCKET_IFNAME": "eth7"}, 2, "no such interface with an address; it has eth0 (10.99.0.2)"),
        (other, {"MASTER_ADDR": ""}, 2, "NNODES=2, but MASTER_ADDR is not set"),
        (other, {"MASTER_ADDR": "127.0.0.1"}, 2, "is the loopback address"),
        (other, {"MASTER_ADDR": "fd99::1"}, 2, "MASTER_ADDR=fd99::1 is an IPv6 address, over which Ray 2.49 forms no"),
        (other, {"MASTER_ADDR": "192.0.2.1"}, 2, "no route there"),
        (other, {"MASTER_ADDR": "10.99.0.9", "RAY_JOIN_SECONDS": "3"}, 1, "no head answers at 10.99.0.9:29444 ("),
        (head, {}, 2, "port 29444 cannot be used for Ray: Address already in use (process "),
    ):  # fmt: skip
        launch = lab.start(host, "exit 0", **env)
        assert (launch.finish(), said in launch.output) == (code, True), launch.output
    server.kill()
    server.wait()
    head.run("pkill", "-f", "http.server")
    lab.assert_nothing_left()
