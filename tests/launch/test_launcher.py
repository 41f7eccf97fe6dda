"""ray_start_npu.sh: exit codes pass, only its own processes end, nothing stays behind."""

import ipaddress
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from qwen3_rl.launch.crashes import crashes

from .conftest import ROOT, free_port

WAITING = """
touch "$RUN_FOLDER/started"
setsid sleep 1000 &  # as a daemon would: its parent, its session and its terminal are gone
(trap '' TERM INT; sleep 1000) &
sleep 1000
"""


def test_exit_code_arguments_and_logs(launch, tmp_path):
    (tmp_path / "mindspeed").mkdir()
    (tmp_path / "mindspeed/op_builder.py").write_text("class GMM:\n    load = print")
    mindspeed = {"PYTHONPATH": str(tmp_path), "MINDSPEED_OPERATORS": "GMM"}
    run = launch('printf "<%s>" "$@"; echo to-stderr >&2; exit 3', "a b", "c=[d,e]", "*", **mindspeed)
    assert run.finish() == 3
    assert 0 < run.output.index("operator GMM: ready") < run.output.index("Ray: 127.0.0.1")
    assert "<a b><c=[d,e]><*>" in run.output
    assert "to-stderr" in (run.run_folder / "train.log").read_text()
    assert "Ray runtime started" in (run.run_folder / "ray.log").read_text()
    assert list((run.run_folder / "ray-logs").glob("raylet*")), "a failed run keeps Ray's logs"
    assert f"{ROOT}/frameworks/verl" in run.output or "FRAMEWORKS_DIR" in os.environ
    run.assert_nothing_left()


JOB = """
exec python - <<'END'
import os, ray
from multiprocessing import shared_memory
ray.init(log_to_driver=False)
print("npus", ray.cluster_resources()["NPU"])

@ray.remote(resources={"NPU": 1}, num_cpus=0)
def leave_a_segment():
    from multiprocessing import resource_tracker
    segment = shared_memory.SharedMemory(create=True, size=4096)
    resource_tracker.unregister(segment._name, "shared_memory")  # so that no tracker removes it either
    import time
    time.sleep(5)
    return segment.name

name = ray.get(leave_a_segment.remote())
assert os.path.exists(f"/dev/shm/{name}")
print("left", name)
END
"""


def test_a_ray_job_runs_and_its_shared_memory_goes(launch):
    run = launch(JOB)
    assert run.finish() == 0, run.output
    assert "npus 1.0" in run.output
    assert "left psm_" in run.output
    assert not (run.run_folder / "ray-logs").exists()
    run.assert_nothing_left()


def test_a_worker_that_was_told_to_end_has_not_crashed(tmp_path):
    (tmp_path / "worker-1-2-3.err").write_text(":job_id:01\n*** SIGTERM received at time=1 on cpu 0 ***\n")
    assert crashes(tmp_path) == []


CRASH = """
exec python - <<'END'
import os, ray, signal, sys
ray.init(log_to_driver=False)

@ray.remote(num_cpus=0)
class Trainer:
    def step(self):
        print("no such layer", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)

ray.get(Trainer.remote().step.remote())
END
"""


def test_a_crash_in_native_code_is_named(launch):
    run = launch(CRASH)
    assert run.finish() == 1
    said = run.output[run.output.index("peak memory") :]
    (crash,) = re.findall(r"^Trainer crashed, see (.+):\n  no such layer\n  \*\*\* SIGSEGV re", said, re.MULTILINE)
    assert Path(crash).read_text().startswith(":job_id:")
    assert " in step\n" in said
    run.assert_nothing_left()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_takes_everything_down(launch, number, code):
    run = launch(WAITING)
    run.wait_for("started")
    os.kill(run.process.pid, number)
    assert run.finish(60) == code
    assert "Traceback" not in run.output
    run.assert_nothing_left()


def test_only_loopback_listens(launch):
    run = launch(WAITING)
    run.wait_for("started")
    pids = {process.pid for process in run.processes()}
    listening = [
        connection.laddr.ip
        for connection in psutil.net_connections("inet")
        if connection.pid in pids and connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) > 5, "Ray's own servers at least"
    others = [ip for ip in listening if not _is_loopback(ip)]
    assert not others


def _is_loopback(text: str) -> bool:
    address = ipaddress.ip_address(text)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def test_kill_9_of_the_launcher(launch):
    """Its children are told by the kernel; the temporary folder is removed by the next launcher."""
    run = launch(WAITING)
    run.wait_for("started")
    run.process.kill()
    run.process.wait()
    deadline = time.monotonic() + 30
    servers = {"raylet", "gcs_server"}
    while time.monotonic() < deadline and any(process.name() in servers for process in run.processes()):
        time.sleep(0.2)
    assert not any(process.name() in servers for process in run.processes())
    for process in run.processes():  # what ignores SIGTERM or has left its session is beyond a dead launcher
        process.kill()
    assert list(run.tmp.iterdir()) != []
    again = launch("exit 0", TMPDIR=str(run.tmp))
    assert again.finish() == 0, again.output
    run.assert_nothing_left()


def test_stop_mine_ends_what_a_killed_launcher_left(launch):
    run = launch('sleep 300 & touch "$RUN_FOLDER/up"; wait')
    run.wait_for("up")
    others = launch("exit 0")  # of the same user: refused, and left alone by what follows
    assert others.finish() == 2
    live = call("--stop-mine")
    assert (live.returncode, live.stdout) == (0, "nothing is left of an earlier run\n")
    run.process.kill()
    run.process.wait()
    time.sleep(2)  # the direct children end by themselves
    (left,) = (process for process in run.processes() if process.name() == "sleep")
    stopped = call("--stop-mine")
    assert stopped.returncode == 0 and f"ending process {left.pid}, sleep, of {run.run_folder}" in stopped.stdout
    assert run.processes() == []


def test_a_taken_port_is_named_with_its_holder(launch):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        run = launch("exit 0", RAY_PORT=str(port))
        assert run.finish() == 2
        assert f"port {port} cannot be used" in run.output
        assert f"process {os.getpid()}" in run.output
        assert "set RAY_PORT to another one" in run.output
    assert not run.run_folder.exists()


def test_an_old_ray_is_named_and_left_alone(launch, tmp_path):
    raylet = tmp_path / "raylet"
    shutil.copy("/bin/sleep", raylet)
    old = subprocess.Popen([raylet, "100"])
    try:
        run = launch("exit 0")
        assert run.finish() == 2
        assert f"raylet (process {old.pid}" in run.output
        assert "next: " in run.output
        assert old.poll() is None
    finally:
        old.kill()
        old.wait()


def test_a_run_folder_is_never_written_over(launch, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "train.log").write_text("precious")
    run = launch("exit 0", OUTPUTS_DIR=str(tmp_path))
    assert run.finish() == 2
    assert "no run writes over another's" in run.output
    assert (tmp_path / "run" / "train.log").read_text() == "precious"


@pytest.mark.parametrize(
    ("name", "value"),
    [("RAY_PORT", "ray"), ("RAY_PORT", "80"), ("NPUS_PER_NODE", "0"), ("RUN_NAME", "../up"), ("RAY_NUM_CPUS", "-1")],
)
def test_a_bad_setting_is_named(tmp_path, name, value):
    (tmp_path / "train.sh").write_text("exit 0\n")
    (tmp_path / "env.sh").write_text(f"export {name}={value}\n")
    done = call(str(tmp_path / "train.sh"), str(tmp_path / "env.sh"))
    assert done.returncode == 2
    assert f"{name}='{value}'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_second_launcher_is_refused(launch):
    first = launch(WAITING)
    first.wait_for("started")
    second = launch("exit 0")
    assert second.finish() == 2
    assert f"at work on this machine (process {first.process.pid})" in second.output
    assert not second.run_folder.exists()
    os.kill(first.process.pid, signal.SIGTERM)
    assert first.finish(60) == 143


def test_the_last_words_of_a_script_are_kept(launch):
    """At Ctrl-C the script's output is still read, so that it neither blocks on a full pipe nor is lost."""
    run = launch(
        """
        trap 'head -c 300000 /dev/zero | tr "\\0" y; echo LAST WORDS; exit 5' INT
        touch "$RUN_FOLDER/started"
        while true; do sleep 0.1; done
        """
    )
    run.wait_for("started")
    os.kill(run.process.pid, signal.SIGINT)
    assert run.finish(60) == 130
    assert "LAST WORDS" in (run.run_folder / "train.log").read_text()
    run.assert_nothing_left()


def test_a_chatty_child_does_not_keep_the_run_alive(launch):
    run = launch("(while :; do echo x; sleep 0.2; done) & exit 3")
    assert run.finish(60) == 3
    run.assert_nothing_left()


def test_a_terminal_that_goes_away_stops_nothing(launch):
    run = launch('sleep 3; echo late; touch "$RUN_FOLDER/finished"')
    run.process.stdout.close()  # before the launcher's first line
    assert run.process.wait(90) == 0
    assert (run.run_folder / "finished").exists()
    assert "late" in (run.run_folder / "train.log").read_text()
    run.assert_nothing_left()


def test_folders_of_others_are_left_alone(launch):
    run = launch("exit 0")
    for name in ("qwen3-rl-235-logs", "qwen3-rl-4b-grpo"):
        (run.tmp / name).mkdir()
        (run.tmp / name / "precious").write_text("mine")
    assert run.finish() == 0, run.output
    assert sorted(path.name for path in run.tmp.glob("*/precious")) == ["precious", "precious"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("exit 0\n", "ended the shell that sourced it (exit code 0)"),
        ("export A=1\r\nexport B=2\r\n", "has CRLF line ends"),
        ("if true; then\n", "is not a bash script"),
    ],
)
def test_an_env_script_that_cannot_be_sourced(tmp_path, text, message):
    (tmp_path / "train.sh").write_text("exit 0\n")
    (tmp_path / "env.sh").write_bytes(text.encode())
    done = call(str(tmp_path / "train.sh"), str(tmp_path / "env.sh"))
    assert done.returncode == 2
    assert message in done.stderr
    assert str(tmp_path / "env.sh") in done.stderr


def call(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(["bash", ROOT / "ray_start_npu.sh", *arguments], capture_output=True, text=True)


def test_missing_scripts_are_named(tmp_path):
    script = tmp_path / "there.sh"
    script.write_text("exit 0\n")
    for arguments, message in [
        ([], "two arguments are needed, 0 given"),
        ([str(script)], "two arguments are needed, 1 given"),
        (["/no/train.sh", str(script)], "there is no script /no/train.sh"),
        ([str(script), "/no/env.sh"], "there is no script /no/env.sh"),
    ]:
        done = call(*arguments)
        assert done.returncode == 2
        assert done.stderr.startswith(f"error: {message}\n next: ")


def test_a_temporary_folder_too_long_for_sockets(launch, tmp_path):
    long = tmp_path / ("x" * 80)
    long.mkdir()
    run = launch("exit 0", TMPDIR=str(long))
    assert run.finish() == 2
    assert "TMPDIR=/tmp" in run.output


def test_folders_that_only_the_env_script_names(tmp_path):
    """The launcher itself looks there too, not only what it starts."""
    (tmp_path / "train.sh").write_text("exit 0\n")
    for name in ("FRAMEWORKS_DIR", "TMPDIR"):
        folder = tmp_path / ("x" * 80)
        folder.mkdir(exist_ok=True)
        (tmp_path / "env.sh").write_text(f"export {name}={folder} RAY_PORT={free_port()}\n")
        done = call(str(tmp_path / "train.sh"), str(tmp_path / "env.sh"))
        assert done.returncode != 0
        assert str(folder) in done.stderr, done.stderr


def test_an_outputs_folder_that_cannot_be_made(launch, tmp_path):
    (tmp_path / "file").write_text("")
    run = launch("exit 0", OUTPUTS_DIR=str(tmp_path / "file"))
    assert run.finish() == 2
    assert f"error: {tmp_path / 'file'}" in run.output
    assert "Traceback" not in run.output
    run.assert_nothing_left()
