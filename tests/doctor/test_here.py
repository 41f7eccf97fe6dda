"""The doctor on the machine that runs the tests, which has no NPU."""

import json
import os
import socket
import subprocess
import sys

import pytest
from doctor_lab import doctor

from patchset.project import find_project
from patchset.verify import attestation, one_line
from qwen3_rl.doctor.machine import Machine
from qwen3_rl.doctor.network import listeners
from qwen3_rl.doctor.npu_smi import for_npu
from qwen3_rl.doctor.processes import left_over

no_npu = pytest.mark.skipif(for_npu(Machine()), reason="this machine has NPUs")


def rows(done: subprocess.CompletedProcess) -> dict[str, dict]:
    return {row["check"]: row for row in json.loads(done.stdout)["findings"]}


@no_npu
def test_what_only_npus_have_is_no_fault_here():
    said = rows(doctor("--json"))
    for check in ("CANN", "driver (HDK)", "NPUs", "kernel caches"):
        assert (said[check]["level"], said[check]["found"]) == ("note", "no NPU here")
    assert said["torch_npu"]["level"] == "note"
    # torch is the CPU target's, another one than the lock's.
    torch = Machine().package("torch")
    assert (said["torch"]["level"] == "ok") is (torch == said["torch"]["expected"] == "2.9.1")


def test_the_last_line_names_the_exact_trees():
    last = doctor().stdout.splitlines()[-1]
    assert last.startswith(one_line(attestation(find_project(None))))


def test_trees_that_are_absent_or_something_else(tmp_path):
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "setup.py").write_text("")
    done = doctor("--json", FRAMEWORKS_DIR=str(tmp_path))
    said = rows(done)
    assert (said["verl"]["level"], said["verl"]["found"]) == ("fault", "absent")
    assert "patchset fetch" in said["verl"]["fix"]
    assert said["vllm"]["level"] == "fault"
    assert said["mindspeed"]["level"] == "note"
    assert done.returncode == 4


def test_a_taken_port_is_seen_whoever_has_it():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listeners(Machine())[port] == {"127.0.0.1"}
        said = rows(doctor("--json", RAY_PORT=str(port)))["Ray port"]
    assert (said["level"], said["found"]) == ("fault", f"{port} is taken")


def test_the_way_to_the_head():
    said = rows(doctor("--json", "--master", "127.0.0.1"))["route to the head"]
    assert said["level"] == "ok"
    assert said["found"].startswith("127.0.0.1 from 127.0.0.1")


def test_a_left_over_process_is_named_with_its_age(tmp_path):
    program = tmp_path / "raylet"
    program.symlink_to("/bin/cat")
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.read(1)  # only now it has a name for sure: Popen returns in the middle of exec
        found = {each.pid: each for each in left_over(Machine())}[process.pid]
        process.stdin.close()
    assert (found.name, found.uid) == ("raylet", os.getuid())
    assert 0 <= found.seconds < 60


def test_an_interface_that_is_not_there():
    said = rows(doctor("--json", GLOO_SOCKET_IFNAME="nope0"))["GLOO_SOCKET_IFNAME"]
    assert (said["level"], said["found"]) == ("fault", "nope0")
    assert "lo" in said["expected"]


def test_a_command_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr("qwen3_rl.doctor.machine.COMMAND_SECONDS", 0.2)
    assert Machine().run("sleep", "30") == "sleep: no answer within 0 s"


def test_it_starts_without_torch_and_ray():
    code = "import sys, qwen3_rl.doctor.cli; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert not {"torch", "ray", "vllm", "verl", "numpy"} & set(loaded)


def test_a_reader_that_has_enough():
    reading, writing = os.pipe()
    os.close(reading)  # as `| head -1` does, sometime
    command = [sys.executable, "-m", "qwen3_rl.cli", "doctor"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")
