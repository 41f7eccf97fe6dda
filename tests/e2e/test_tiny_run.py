"""The quickstart in its shortest form: the real patched trainer, vLLM and Ray, three steps on a CPU."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from qwen3_rl.report.names import KEPT
from qwen3_rl.report.sources import read_run

ROOT = Path(__file__).parents[2]
SHM = Path("/dev/shm")
# The gate follows the clock.
ALWAYS_DRAFT = "+actor_rollout_ref.rollout.engine_kwargs.vllm.speculative_config.sam_config.gate=False"
QUICKSTART = ["bash", str(ROOT / "quickstart.sh"), "--steps", "3"]

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        not (ROOT / ".venv" / ".built-for").is_file(), reason="needs build_project.sh --target cpu in this checkout"
    ),
]


def leftovers(outputs: Path, shm_before: set[str], tmp: Path) -> list[str]:
    """Processes, shared memory and files of a run that outlive it."""
    left = [f"/dev/shm/{name}" for name in {path.name for path in SHM.iterdir()} - shm_before]
    left += [str(path) for path in tmp.iterdir()]
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("OUTPUTS_DIR") == str(outputs) and process.status() != psutil.STATUS_ZOMBIE:
                left.append(" ".join(process.cmdline()[:4]))
    return left


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    outputs = tmp_path_factory.mktemp("outputs")
    tmp = Path(subprocess.check_output(["mktemp", "-d", "/tmp/e-XXXX"], text=True).strip())  # short: sockets
    shm_before = {path.name for path in SHM.iterdir()}
    done = subprocess.run(
        [*QUICKSTART, "actor_rollout_ref.rollout.calculate_log_probs=True", ALWAYS_DRAFT],
        env={**os.environ, "OUTPUTS_DIR": str(outputs), "RUN_NAME": "run", "TMPDIR": str(tmp)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    yield outputs / "run", done.stdout, leftovers(outputs, shm_before, tmp)
    subprocess.run(["rm", "-rf", tmp], check=True)


def test_rollout_and_actor_are_one_model(run):
    """The rollout's probability of each of its tokens, against the actor's: weights, masks and kernels all agree."""
    folder, _, _ = run
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [step["training/global_step"] for step in steps] == [1, 2, 3]
    for step in steps:
        assert step["training/rollout_probs_diff_valid"] == 1
        assert 0 <= step["training/rollout_probs_diff_max"] < 1e-3
        assert 0 < step["response_length/mean"] <= 8
        # SAM drafted all the while, and log-probs were no hindrance.
        assert step["rollout/spec_decode/gate"] == 0
        assert step["rollout/spec_decode/draft_tokens"] > 0
    # Training did change the policy in between: equality of the two was not that of two models at rest.
    assert steps[0]["actor/grad_norm"] > 0
    assert steps[0]["actor/entropy"] != steps[2]["actor/entropy"]


def test_the_output_folder_and_the_table(run):
    folder, output, _ = run
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "Training from scratch" in (folder / "train.log").read_text()
    for step in (1, 2, 3):
        assert re.search(rf"│ +{step} │ +0\.\d+ │ +\d\.\d │ +\d+\.\d │", output)
    assert re.search(r"verl 0\.7\.1 +\d+ patches +[0-9a-f]{12} +/\S+/verl", output)
    assert re.search(r"vllm 0\.13\.0 +\d+ patches +[0-9a-f]{12} +/\S+/vllm", output)


def test_the_console_log_and_the_metrics_say_the_same(run):
    """The form of the step lines and of the printed settings is veRL's: this fails where a new veRL changes it."""
    folder, logged = read_run(run[0]), read_run(run[0] / "train.log")
    assert folder.steps.training() == [1, 2, 3]
    for name in KEPT:
        assert folder.steps.series(name) == logged.steps.series(name)
    assert folder.settings == logged.settings
    assert folder.settings["trainer.total_training_steps"] == 3
    assert set(folder.versions) >= {"verl", "vllm"}


def test_memory_stays_small(run):
    peak = float(re.search(r"peak memory ([\d.]+) GB", run[1])[1])
    assert 1 < peak < 12


def test_nothing_is_left(run):
    assert run[2] == []


def test_ctrl_c_in_the_middle_of_training(tmp_path):
    tmp = Path(subprocess.check_output(["mktemp", "-d", "/tmp/e-XXXX"], text=True).strip())
    shm_before = {path.name for path in SHM.iterdir()}
    process = subprocess.Popen(
        [*QUICKSTART[:2], "--steps", "1000"],
        env={**os.environ, "OUTPUTS_DIR": str(tmp_path), "RUN_NAME": "run", "TMPDIR": str(tmp)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    log = tmp_path / "run" / "train.log"
    deadline = time.monotonic() + 400
    while not (log.is_file() and "step:1 " in log.read_text(errors="replace")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does
    assert process.wait(90) == 130
    assert leftovers(tmp_path, shm_before, tmp) == []
    steps = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(steps[0])["training/global_step"] == 1
    tmp.rmdir()
