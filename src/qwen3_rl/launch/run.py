"""The launcher behind ray_start_npu.sh: Ray up, the train script, Ray down, nothing left behind.

Exit codes: the train script's own; 1 Ray did not start or the imported trees are not the patched ones; 2 wrong usage
or settings, a taken port, a Ray that runs already; 128 + N ended by signal N (130 for Ctrl-C).
"""

import argparse
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from patchset.project import find_project
from qwen3_rl.errors import UserError, as_user_errors
from qwen3_rl.launch import processes, ray_head
from qwen3_rl.launch.attest import attest
from qwen3_rl.launch.environment import check_script, source_environment
from qwen3_rl.launch.scratch import Scratch, only_launcher
from qwen3_rl.launch.settings import Settings, read_settings
from qwen3_rl.report.metrics import RAW_METRICS, TREES, write_metrics

ASK_SECONDS = 120  # for all nodes together
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


def make_run_folder(settings: Settings, train_script: Path) -> Path:
    """outputs/NAME, new: RUN_NAME, or the script's name and the time. Raises UserError if it is there already."""
    name = settings.run_name or f"{train_script.stem.removeprefix('train_')}-{datetime.now():%Y%m%d-%H%M%S}"
    folder = Path(settings.outputs_dir).absolute() / name
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise UserError(f"{folder} exists, and no run writes over another's", "set RUN_NAME to a new name") from None
    return folder


def run_script(script: Path, arguments: list[str], env: dict[str, str], log: Path, scratch: Scratch) -> int:
    """Run the train script, its output to the terminal and to ``log``; returns its exit code as a shell gives it.

    On a signal the script gets SIGINT and ten seconds, in which what it says is still recorded.
    """
    read, write = os.pipe()
    process = processes.start(["bash", str(script), *arguments], env, write)
    os.close(write)
    with os.fdopen(read, "rb", buffering=0) as source, log.open("wb", buffering=0) as sink:
        try:
            pump(source, sink, process, scratch)
        except Ended:
            processes.signal_group(process, signal.SIGINT)
            pump(source, sink, process, scratch, patience=10)
            processes.signal_group(process, signal.SIGKILL)
            raise
    code = process.wait()
    return code if code >= 0 else 128 - code


def pump(
    source: BinaryIO, sink: BinaryIO, process: subprocess.Popen, scratch: Scratch, patience: float = float("inf")
) -> None:
    """Copy what the script prints until it has ended, or for ``patience`` seconds.

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
        if process.poll() is not None:
            if not ready:
                return
            until = min(until, time.monotonic() + 1)


def prepare_to_ask(env: dict[str, str]) -> subprocess.Popen:
    """Start what will ask the nodes. A process of its own, begun early: to import Ray takes as long as to start it."""
    command = [sys.executable, "-m", "qwen3_rl.launch.nodes"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=env, text=True, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)


def check_nodes(asker: subprocess.Popen, log: Path) -> None:
    """Raises UserError if a machine of the cluster imports other trees than this one."""
    try:
        agreed, said = asker.communicate("Ray is up\n", timeout=ASK_SECONDS)
    except subprocess.TimeoutExpired:
        raise UserError(
            f"the nodes of the cluster did not say within {ASK_SECONDS} s what they import", f"read {log}", 1
        ) from None
    if asker.returncode:
        what, told, next_step = said.strip().rpartition("\n next: ")
        if not told:
            raise UserError(f"the nodes of the cluster could not be asked:\n{said.strip()}", f"read {log}", 1)
        raise UserError(what.removeprefix("error: "), next_step, 1)
    say(agreed.strip())


def keep_ray_logs(scratch: Scratch, run_folder: Path) -> None:
    logs = scratch.folder / "ray" / "session_latest" / "logs"
    if logs.is_dir():
        shutil.copytree(logs, run_folder / "ray-logs", ignore_dangling_symlinks=True)


def launch(train_script: Path, env_script: Path, arguments: list[str]) -> int:
    """The whole run. Raises UserError before anything is started, or if Ray does not start; Ended on a signal."""
    for script in (train_script, env_script):
        check_script(script)
    env = source_environment(env_script)
    os.environ.clear()  # for this process too: TMPDIR and FRAMEWORKS_DIR may come from there
    os.environ.update(env)
    settings = read_settings(env)
    say("patched trees:")
    trees = attest(find_project(None))
    for line in trees:
        say(f"  {line}")

    # Left in the opposite order, each step whatever becomes of the others.
    with ExitStack() as stack:
        stack.enter_context(only_launcher())
        ray_head.check_room(settings)
        scratch = Scratch.make()
        stack.callback(scratch.remove)
        run_folder = make_run_folder(settings, train_script)
        stack.callback(write_metrics, run_folder)
        (run_folder / TREES).write_text("".join(f"{line}\n" for line in trees))
        say(f"run folder: {run_folder}")

        processes.adopt_orphans()
        env |= {
            **ray_head.ENV,
            "TMPDIR": str(scratch.folder),
            "RAY_ADDRESS": f"{ray_head.LOOPBACK}:{settings.ray_port}",
            "RUN_FOLDER": str(run_folder),
            "VERL_FILE_LOGGER_PATH": str(run_folder / RAW_METRICS),
            "PYTHONUNBUFFERED": "1",
        }
        failed = stack.enter_context(ExitStack())
        failed.callback(keep_ray_logs, scratch, run_folder)
        stack.callback(processes.end_descendants, patience=5)
        stack.callback(ignore_signals)
        asker = prepare_to_ask(env)
        head = ray_head.start(settings, env, scratch.folder, run_folder / "ray.log")
        stack.callback(ray_head.stop, head)
        stack.callback(say, "stopping ...")
        stack.callback(ignore_signals)
        say(f"Ray: {env['RAY_ADDRESS']}, {settings.npus_per_node} NPU")
        check_nodes(asker, run_folder / "ray.log")
        code = run_script(train_script, arguments, env, run_folder / "train.log", scratch)
        if code == 0:
            failed.pop_all()
    say(f"peak memory {scratch.peak_bytes / 1e9:.1f} GB, exit code {code}: {run_folder}")
    if code != 0:
        say(f"the train script failed; read {run_folder}/train.log, then {run_folder}/ray-logs", 2)
    return code


def main() -> int:
    parser = argparse.ArgumentParser(prog="ray_start_npu.sh", description="Run a train script on a Ray of its own.")
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
