"""Real launchers with a real Ray, around small train scripts. They need build_project.sh --target cpu."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
SHM = Path("/dev/shm")


@dataclass
class Launch:
    """One launcher: its process, the folder of its run and its temporary folder's parent."""

    process: subprocess.Popen
    run_folder: Path
    tmp: Path
    output: str = ""

    def finish(self, timeout: float = 120) -> int:
        self.output, _ = self.process.communicate(timeout=timeout)
        return self.process.returncode

    def processes(self) -> list[psutil.Process]:
        """Every live process that carries this run's environment, wherever it hangs in the process tree."""
        found = []
        for process in psutil.process_iter():
            try:
                mine = process.environ().get("RUN_FOLDER") == str(self.run_folder)
                if mine and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def wait_for(self, marker: str, timeout: float = 90) -> None:
        """Until the train script has made the file ``marker`` in the run folder."""
        deadline = time.monotonic() + timeout
        while not (self.run_folder / marker).exists():
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline, f"no {marker} after {timeout} s"
            time.sleep(0.1)

    def assert_nothing_left(self, within: float = 5) -> None:
        deadline = time.monotonic() + within
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not left, [process.cmdline()[:4] for process in left]
        assert list(self.tmp.iterdir()) == []
        assert {path.name for path in SHM.iterdir()} <= self.shm_before


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def launch(tmp_path_factory):
    """Starts ray_start_npu.sh with a train script of the given text; ends what a failing test leaves."""
    pytest.importorskip("ray", reason="needs build_project.sh --target cpu")
    started: list[Launch] = []

    def start(script: str, *arguments: str, **env: str) -> Launch:
        folder = tmp_path_factory.mktemp("launch")
        tmp = Path(subprocess.check_output(["mktemp", "-d", "/tmp/l-XXXX"], text=True).strip())  # short: sockets
        (folder / "train.sh").write_text(script)
        (folder / "env.sh").write_text("export NPUS_PER_NODE=1 RAY_NUM_CPUS=1 RAY_OBJECT_STORE_BYTES=100000000\n")
        process = subprocess.Popen(
            ["bash", ROOT / "ray_start_npu.sh", folder / "train.sh", folder / "env.sh", *arguments],
            env={
                **os.environ,
                "TMPDIR": str(tmp),
                "OUTPUTS_DIR": str(folder),
                "RUN_NAME": "run",
                "RAY_PORT": str(free_port()),
                **env,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        one = Launch(process, folder / "run", tmp)
        one.shm_before = {path.name for path in SHM.iterdir()}
        started.append(one)
        return one

    yield start
    for one in started:
        if one.process.poll() is None:
            os.killpg(one.process.pid, signal.SIGKILL)
        for process in one.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        subprocess.run(["rm", "-rf", one.tmp], check=True)
