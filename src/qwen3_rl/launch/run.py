"""The launcher behind ray_start_npu.sh: Ray up, the train script, Ray down, nothing left behind.

Exit codes: the train script's own, on every machine; 1 Ray did not start, the cluster did not come together or fell
apart, or the imported trees are not the patched ones; 2 wrong usage or settings, a taken port, a Ray that runs already;
128 + N ended by signal N (130 for Ctrl-C).
"""

import argparse
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from patchset.project import find_project
from qwen3_rl.doctor.machine import Machine
from qwen3_rl.doctor.npu_smi import npu_smi
from qwen3_rl.errors import UserError, as_user_errors
from qwen3_rl.launch import operators, own_interface, processes, ray_node
from qwen3_rl.launch.attest import attest
from qwen3_rl.launch.cluster import Asker, follow, join
from qwen3_rl.launch.crashes import crashes
from qwen3_rl.launch.environment import check_script, source_environment
from qwen3_rl.launch.place import Place, find_place
from qwen3_rl.launch.scratch import Scratch, left_behind, only_launcher, remove_stale
from qwen3_rl.launch.settings import Settings, read_settings
from qwen3_rl.report.metrics import RAW_METRICS, TREES, write_metrics

RAY_LOGS = "ray-logs"  # in the run's folder
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(Exception):
    """A signal told the launcher to end."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


def _raise_ended(number: int, _frame) -> None:
    ignore_signals()
    raise Ended(number)


def ignore_signals() -> None:
    """From here on a signal must not break off the cleaning up, which is bounded in time."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def say(data: str | bytes, descriptor: int = 1) -> None:
    """Write to the terminal. Where it has gone (`| head`, a closed window), the run goes on without it."""
    text = data if isinstance(data, bytes) else f"{data}\n".encode(errors="replace")
    try:
        while text:
            text = text[os.write(descriptor, text) :]
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def make_run_folder(settings: Settings, place: Place, train_script: Path) -> Path:
    """outputs/NAME, new: RUN_NAME, or the script's name and the time; with its address on a node that is not the head.

    Raises UserError if it is there already.
    """
    name = settings.run_name or f"{train_script.stem.removeprefix('train_')}-{datetime.now():%Y%m%d-%H%M%S}"
    if not place.is_head:
        name += f"-{place.address}"
    folder = Path(settings.outputs_dir).absolute() / name
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise UserError(f"{folder} exists, and no run writes over another's", "set RUN_NAME to a new name") from None
    return folder


def say_npu_processes(env: dict[str, str]) -> None:
    """Name who holds this machine's NPUs before the run: HCCL times out beside what an earlier run has left."""
    smi = npu_smi(Machine(env=env))
    if smi and smi.processes:
        held = ", ".join(f"{p.pid} ({p.name}, NPU {p.npu} chip {p.chip}, {p.megabytes} MB)" for p in smi.processes)
        say(f"warning: processes hold NPUs of this machine: {held}; if they are left over, end them: kill PID", 2)


def run_script(argv: list[str], env: dict[str, str], log: Path, scratch: Scratch, asker: Asker, grace: float) -> int:
    """Run the train script, its output to the terminal and to ``log``; returns its exit code as a shell gives it.

    On a signal the script gets SIGINT and ten seconds, in which what it says is still recorded. If a node leaves the
    cluster, it gets that ``grace`` seconds later, and the exit code is 1.
    """
    read, write = os.pipe()
    process = processes.start(["bash", *argv], env, write)
    os.close(write)
    with os.fdopen(read, "rb", buffering=0) as source, log.open("wb", buffering=0) as sink:
        try:
            pump(source, sink, process, scratch, asker=asker, grace=grace)
            if process.poll() is None:
                say(f"the train script did not end by itself within {grace:.0f} s; it is ended", 2)
                end_script(source, sink, process, scratch)
                process.wait()
                return 1
        except Ended:
            end_script(source, sink, process, scratch)
            raise
    code = process.wait()
    return code if code >= 0 else 128 - code


def end_script(source: BinaryIO, sink: BinaryIO, process: subprocess.Popen, scratch: Scratch) -> None:
    processes.signal_group(process, signal.SIGINT)
    pump(source, sink, process, scratch, 10)
    processes.signal_group(process, signal.SIGKILL)


def pump(
    source: BinaryIO,
    sink: BinaryIO,
    process: subprocess.Popen,
    scratch: Scratch,
    patience: float = float("inf"),
    asker: Asker | None = None,
    grace: float = 0,
) -> None:
    """Copy what the script prints until it has ended, for ``patience`` seconds, or ``grace`` after a node has left.

    A process that the script left behind may hold the pipe open and go on printing: a second later that is cut off.
    """
    until = time.monotonic() + patience
    while time.monotonic() < until:
        ready, _, _ = select.select([source], [], [], 0.5)
        chunk = source.read(65536) if ready else b""
        if ready and not chunk:
            process.wait()
            return
        sink.write(chunk)
        say(chunk)
        scratch.sample()
        if asker and (news := asker.news()):
            say(f"{news}; the train script has {grace:.0f} s to end by itself", 2)
            until = min(until, time.monotonic() + grace)
        if process.poll() is not None:
            if not ready:
                return
            until = min(until, time.monotonic() + 1)


def keep_ray_logs(scratch: Scratch, run_folder: Path) -> None:
    logs = scratch.folder / "ray" / "session_latest" / "logs"
    if logs.is_dir():
        shutil.copytree(logs, run_folder / RAY_LOGS, ignore_dangling_symlinks=True)


def launch(train_script: Path, env_script: Path, arguments: list[str]) -> int:
    """The whole run. Raises UserError before anything is started, or if Ray does not start; Ended on a signal."""
    for script in (train_script, env_script):
        check_script(script)
    env = source_environment(env_script)
    os.environ.clear()  # for this process too: TMPDIR and FRAMEWORKS_DIR may come from there
    os.environ.update(env)
    settings = read_settings(env)
    place = find_place(settings)
    say("patched trees:")
    trees = attest(find_project(None))
    for line in trees:
        say(f"  {line}")

    # Left in the opposite order, each step whatever becomes of the others.
    with ExitStack() as stack:
        stack.enter_context(only_launcher())
        ray_node.check_room(settings, place)
        # Ray puts its session below the head's temporary folder, on every node.
        scratch = Scratch.make(None if place.alone else f"{os.getuid()}-{settings.ray_port}")
        stack.callback(scratch.remove)
        run_folder = make_run_folder(settings, place, train_script)
        stack.callback(write_metrics, run_folder)
        (run_folder / TREES).write_text("".join(f"{line}\n" for line in trees))
        say(f"run folder: {run_folder}")

        processes.adopt_orphans()
        env |= {
            **place.environment(),
            "TMPDIR": str(scratch.folder),
            "RAY_ADDRESS": ray_node.head_address(settings, place),
            "RUN_FOLDER": str(run_folder),
            "VERL_FILE_LOGGER_PATH": str(run_folder / RAW_METRICS),
            "PYTHONUNBUFFERED": "1",
        }
        failed = stack.enter_context(ExitStack())
        failed.callback(keep_ray_logs, scratch, run_folder)
        stack.callback(processes.end_descendants, patience=5)
        stack.callback(ignore_signals)
        say_npu_processes(env)
        seconds = settings.operator_seconds
        for line in operators.precompile(settings.operators(), env, run_folder / operators.FOLDER, seconds):
            say(line)
        confined = not place.alone and not settings.listen_everywhere
        advice = "close their ports by a firewall"
        if confined:
            try:
                env |= own_interface.environment(place, scratch.folder, env.get("LD_PRELOAD", ""))
            except own_interface.Unconfined as why:
                advice = f"{why}; or {advice}"
        asker = Asker(env) if place.is_head else None
        if not asker:
            say(f"waiting for the head at {env['RAY_ADDRESS']}, {settings.ray_join_seconds} s at most")
        log = run_folder / "ray.log"
        node = (ray_node.start if place.is_head else join)(settings, place, env, scratch.folder, log)
        stack.callback(ray_node.stop, node)
        stack.callback(say, "stopping ...")
        stack.callback(ignore_signals)
        if confined and (servers := own_interface.everywhere()):
            say(f"warning: open on every interface, not on {place.interface} alone: {', '.join(servers)}", 2)
            say(f" next: {advice}", 2)
        if asker:
            say(f"Ray: {env['RAY_ADDRESS']}, {settings.npus_per_node} NPU")
            with telling(asker) as verdict:
                asker.check(settings, place, say, log)
                argv = [str(train_script), *arguments]
                code = run_script(argv, env, run_folder / "train.log", scratch, asker, settings.node_lost_seconds)
                verdict.update(code=code, why=f"{train_script.name} ended")
        else:
            say(f"joined the head at {env['RAY_ADDRESS']} as {place.address}, with {settings.npus_per_node} NPU")
            code, why = follow(settings, place, node, scratch)
            say(why)
        if code == 0:
            failed.pop_all()
    say(f"peak memory {scratch.peak_bytes / 1e9:.1f} GB, exit code {code}: {run_folder}")
    if code != 0:
        for crash in crashes(run_folder / RAY_LOGS):
            say(crash, 2)
        if place.is_head:
            say(f"the train script failed; read {run_folder}/train.log, then {run_folder / RAY_LOGS}", 2)
    return code


@contextmanager
def telling(asker: Asker) -> Iterator[dict]:
    """Whatever happens inside, the other nodes learn how it ended: from what is put into the dictionary, or raised."""
    verdict = {"code": 1, "why": "the launcher failed"}
    try:
        yield verdict
    except Ended as ended:
        verdict |= {"code": 128 + ended.number, "why": f"ended by {signal.Signals(ended.number).name}"}
        raise
    except UserError as error:
        verdict |= {"code": error.exit_code, "why": error.what}
        raise
    finally:
        ignore_signals()
        asker.tell(**verdict)


def stop_mine() -> int:
    """End what launchers left that were killed before they could clean up."""
    left = left_behind()
    for process in left:
        say(f"ending process {process.pid}, {process.name()}, of {process.environ().get('RUN_FOLDER')}")
    processes.end_all(left_behind, patience=10)
    remove_stale(Path(tempfile.gettempdir()))
    if not left:
        say("nothing is left of an earlier run")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="ray_start_npu.sh", description="Run a train script on a Ray of its own.")
    if sys.argv[1:] == ["--stop-mine"]:
        return stop_mine()
    parser.add_argument("train_script", type=Path)
    parser.add_argument("env_script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="passed on to the train script (Hydra overrides)")
    args = parser.parse_args()
    for number in SIGNALS:
        signal.signal(number, _raise_ended)
    try:
        with as_user_errors():
            return launch(args.train_script, args.env_script, args.arguments)
    except UserError as error:
        say(error.render(), 2)
        return error.exit_code
    except Ended as ended:
        say(f"ended by {signal.Signals(ended.number).name}", 2)
        return 128 + ended.number
