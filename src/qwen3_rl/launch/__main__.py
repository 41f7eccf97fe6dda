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
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from patchset.errors import PatchsetError
from patchset.project import find_project
from qwen3_rl.errors import UserError
from qwen3_rl.launch import processes, ray_head
from qwen3_rl.launch.attest import attest
from qwen3_rl.launch.scratch import Scratch
from qwen3_rl.launch.settings import Settings, read_settings
from qwen3_rl.report.metrics import RAW_METRICS, write_metrics


class Ended(Exception):
    """A signal told the launcher to end."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


ASK_SECONDS = 120  # for all nodes together
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _raise_ended(number: int, _frame) -> None:
    ignore_signals()
    raise Ended(number)


def ignore_signals() -> None:
    """From here on a signal must not break off the cleaning up, which is bounded in time."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


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
    """Run the train script, its output to the terminal and to ``log``; returns its exit code as a shell gives it."""
    source, write = os.pipe()
    process = processes.start(["bash", str(script), *arguments], env, write)
    os.close(write)
    try:
        with log.open("wb", buffering=0) as sink:
            for chunk in _output(source, process):
                sink.write(chunk)
                _show(chunk)
                scratch.sample()
        code = process.wait()
    except Ended:
        processes.end_group(process, signal.SIGINT, patience=10)
        raise
    finally:
        os.close(source)
    return code if code >= 0 else 128 - code


def _output(source: int, process: subprocess.Popen) -> Iterator[bytes]:
    """What the script prints, empty twice a second when it is silent, until it has ended (a process that it left behind
    may hold the pipe beyond that)."""
    while True:
        ready, _, _ = select.select([source], [], [], 0.5)
        if ready:
            chunk = os.read(source, 65536)
            if not chunk:
                return
            yield chunk
        elif process.poll() is not None:
            return
        else:
            yield b""


def _show(chunk: bytes) -> None:
    try:
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # `| head` has seen enough; the run goes on, and so does its log.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def prepare_to_ask(env: dict[str, str]) -> subprocess.Popen:
    """Start what will ask the nodes. A process of its own, begun early: to import Ray takes as long as to start it."""
    command = [sys.executable, "-m", "qwen3_rl.launch.nodes"]
    return subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stderr=subprocess.PIPE)


def check_nodes(asker: subprocess.Popen, log: Path) -> None:
    """Raises UserError if a machine of the cluster imports other trees than this one."""
    try:
        _, said = asker.communicate("Ray is up\n", timeout=ASK_SECONDS)
    except subprocess.TimeoutExpired:
        raise UserError(
            f"the nodes of the cluster did not say within {ASK_SECONDS} s what they import", "read ray-logs", 1
        ) from None
    if asker.returncode:
        what, told, next_step = said.strip().rpartition("\n next: ")
        if not told:
            raise UserError(f"the nodes of the cluster could not be asked:\n{said.strip()}", f"read {log}", 1)
        raise UserError(what.removeprefix("error: "), next_step, 1)


def keep_ray_logs(scratch: Scratch, run_folder: Path) -> None:
    logs = scratch.folder / "ray" / "session_latest" / "logs"
    if logs.is_dir():
        shutil.copytree(logs, run_folder / "ray-logs", ignore_dangling_symlinks=True)


def launch(train_script: Path, arguments: list[str]) -> int:
    """The whole run. Raises UserError before anything is started, or if Ray does not start; Ended on a signal."""
    settings = read_settings()
    print("patched trees:")
    for line in attest(find_project(None)):
        print(f"  {line}")
    ray_head.check_room(settings)
    run_folder = make_run_folder(settings, train_script)
    print(f"run folder: {run_folder}", flush=True)

    processes.adopt_orphans()
    scratch = Scratch.make()
    env = {
        **os.environ,
        **ray_head.ENV,
        "TMPDIR": str(scratch.folder),
        "RAY_ADDRESS": f"{ray_head.LOOPBACK}:{settings.ray_port}",
        "RUN_FOLDER": str(run_folder),
        "VERL_FILE_LOGGER_PATH": str(run_folder / RAW_METRICS),
        "PYTHONUNBUFFERED": "1",
    }
    code = 1
    head = None
    try:
        asker = prepare_to_ask(env)
        head = ray_head.start(settings, env, scratch.folder, run_folder / "ray.log")
        print(f"Ray: {env['RAY_ADDRESS']}, {settings.npus_per_node} NPU", flush=True)
        check_nodes(asker, run_folder / "ray.log")
        code = run_script(train_script, arguments, env, run_folder / "train.log", scratch)
    except Ended as ended:
        code = 128 + ended.number
        raise
    finally:
        ignore_signals()
        print("stopping ...", flush=True)
        if head:
            ray_head.stop(head)
        processes.end_descendants(patience=5)
        if code != 0:
            keep_ray_logs(scratch, run_folder)
        scratch.remove()
        steps = write_metrics(run_folder)
    print(f"{steps} steps, peak memory {scratch.peak_bytes / 1e9:.1f} GB, exit code {code}: {run_folder}")
    if code != 0:
        print(
            f"the train script failed; read {run_folder / 'train.log'} and {run_folder / 'ray-logs'}", file=sys.stderr
        )
    return code


def main() -> int:
    parser = argparse.ArgumentParser(prog="ray_start_npu.sh", description="Run a train script on a Ray of its own.")
    parser.add_argument("train_script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="passed on to the train script (Hydra overrides)")
    args = parser.parse_args()
    for number in SIGNALS:
        signal.signal(number, _raise_ended)
    try:
        return launch(args.train_script, args.arguments)
    except UserError as error:
        print(error.render(), file=sys.stderr)
        return error.exit_code
    except PatchsetError as error:
        print(UserError(error.what, error.next_step).render(), file=sys.stderr)
        return 2
    except Ended as ended:
        print(f"ended by {signal.Signals(ended.number).name}", file=sys.stderr)
        return 128 + ended.number


if __name__ == "__main__":
    sys.exit(main())
