"""The length-aware sampler in the real patched trainer, with real rollouts of a model whose answers' lengths are known:
four epochs, killed in the fourth, and resumed in the third."""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

torch = pytest.importorskip("torch", reason="needs build_project.sh --target cpu")

from qwen3_rl.cli import main  # noqa: E402
from qwen3_rl.data.countdown import answer_length  # noqa: E402
from qwen3_rl.report.metrics import METRICS, RAW_METRICS, read_metrics, read_tracking  # noqa: E402

ROOT = Path(__file__).parents[2]
ROWS, BATCH, SIBLINGS, EPOCHS = 26, 4, 2, 4
STEPS_AN_EPOCH = ROWS // BATCH  # two rows are left out of each
STEPS = EPOCHS * STEPS_AN_EPOCH
KILLED, RESUMED, SAVE = 23, 16, 4  # the fifth of six steps of epoch 4; the fourth of epoch 3

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not (ROOT / ".venv" / ".built-for").is_file(), reason="needs build_project.sh --target cpu in this checkout"
    ),
]


def start(folder: Path, name: str, *overrides: str, **environment: str) -> subprocess.Popen:
    command = [
        "bash",
        str(ROOT / "ray_start_npu.sh"),
        str(ROOT / "internal/train_grpo_qwen3_tiny_cpu.sh"),
        str(ROOT / "internal/qwen3_tiny_cpu_env.sh"),
        "data.max_response_length=100",
        "data.sampler.class_path=pkg://verl.experimental.dataset.length_bucket_sampler",
        "data.sampler.class_name=LengthAwareEpochSampler",
        "+data.sampler.bucket_size=4",
        "reward.custom_reward_function.path=pkg://qwen3_rl.data.countdown",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8",
        f"trainer.rollout_data_dir={folder / name / 'rollouts'}",
        f"trainer.save_freq={SAVE}",
        # SAM drafts, as the tiny job does anyway, but always: the gate would follow the clock.
        "+actor_rollout_ref.rollout.engine_kwargs.vllm.speculative_config.sam_config.gate=False",
        *overrides,
    ]
    settings = {
        "PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}",
        "MODEL_PATH": str(folder / "model"),
        "DATA_DIR": str(folder / "data"),
        "OUTPUTS_DIR": str(folder),
        "RUN_NAME": name,
        "TRAIN_BATCH": str(BATCH),
        "RESPONSES": str(SIBLINGS),
    }
    output = (folder / f"{name}.log").open("w")
    return subprocess.Popen(
        command, env={**os.environ, **settings, **environment}, stdout=output, stderr=subprocess.STDOUT
    )


def metrics(run: Path) -> dict[int, dict]:
    """{step: its metrics} of a run that has ended, or is under way."""
    if (run / RAW_METRICS).is_file():
        return {step["step"]: step for step in read_tracking(run / RAW_METRICS)}
    return {step["step"]: step for step in read_metrics(run)} if (run / METRICS).is_file() else {}


def kill_the_trainer(outputs: Path) -> None:
    """SIGKILL to the one process of this run in which veRL's training loop is."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if "TaskRunner" in " ".join(process.cmdline()) and process.environ().get("OUTPUTS_DIR") == str(outputs):
                process.send_signal(signal.SIGKILL)
                return
    raise AssertionError("no TaskRunner runs")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """(the run that was killed, the run that went on from its checkpoint of step 16)."""
    folder = tmp_path_factory.mktemp("runs")
    assert main(["tiny-model", "--to", str(folder / "model"), "--countdown", "0"]) == 0
    assert main(["data", "countdown", "--to", str(folder / "data"), "--train-rows", str(ROWS)]) == 0
    process = start(folder, "killed", STEPS="1000")
    deadline = time.monotonic() + 900
    while KILLED not in metrics(folder / "killed"):
        assert process.poll() is None, (folder / "killed.log").read_text()[-5000:]
        assert time.monotonic() < deadline
        time.sleep(0.2)
    kill_the_trainer(folder)
    assert process.wait(120) == 1
    checkpoint = folder / "killed" / "checkpoints" / f"global_step_{RESUMED}"
    resume = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={checkpoint}"]
    process = start(folder, "resumed", *resume, STEPS=str(STEPS))
    assert process.wait(800) == 0, (folder / "resumed.log").read_text()[-5000:]
    return folder / "killed", folder / "resumed"


def prompts(run: Path, step: int) -> list[str]:
    """The prompts of a step's responses in the trainer's order: each is another row of the dataset."""
    return [json.loads(line)["input"] for line in (run / "rollouts" / f"{step}.jsonl").read_text().splitlines()]


def data_state(run: Path, step: int) -> dict:
    state = torch.load(run / "checkpoints" / f"global_step_{step}" / "data.pt", weights_only=False)
    return state["_sampler_iter_state"]["sampler_iter_state"]


def test_answers_are_as_long_as_the_prompts_say(runs):
    for step in range(1, KILLED + 1):
        for line in (runs[0] / "rollouts" / f"{step}.jsonl").read_text().splitlines():
            response = json.loads(line)
            assert len(response["output"]) == answer_length(response["input"]) - 1  # without the end of the turn


def test_every_row_once_an_epoch(runs):
    seen = [prompts(runs[0], step)[::SIBLINGS] for step in range(1, STEPS)] + [prompts(runs[1], STEPS)[::SIBLINGS]]
    for first in range(0, STEPS, STEPS_AN_EPOCH):
        epoch = [row for batch in seen[first : first + STEPS_AN_EPOCH] for row in batch]
        assert len(set(epoch)) == len(epoch) == BATCH * STEPS_AN_EPOCH
    assert len({row for batch in seen for row in batch}) == ROWS


def bubble(lengths: list[int]) -> float:
    return 1 - np.mean(lengths) / max(lengths)


def test_bubbles_against_shuffle(runs):
    """Over all four epochs, the first of which nothing is known in."""
    steps = metrics(runs[0]) | metrics(runs[1])
    ours = [steps[step]["rollout/bubble_ratio"] for step in range(1, STEPS + 1)]
    for step in range(1, STEPS + 1):
        run = runs[0] if step <= KILLED else runs[1]
        assert ours[step - 1] == pytest.approx(bubble([answer_length(p) for p in prompts(run, step)]), abs=1e-5)
    for step in range(1, STEPS + 1):
        assert ("rollout/length_estimate_error" in steps[step]) == (step > STEPS_AN_EPOCH)
        assert steps[step].get("rollout/length_estimate_error", 0) < 0.01
    # veRL's own shuffle of the same rows with the same seed; lengths do not change, so no second run is needed.
    from torchdata.stateful_dataloader import StatefulDataLoader
    from torchdata.stateful_dataloader.sampler import RandomSampler

    rows = sorted({prompt for step in range(1, KILLED + 1) for prompt in prompts(runs[0], step)})
    shuffle = RandomSampler(rows, generator=torch.Generator().manual_seed(1))
    loader = StatefulDataLoader(rows, batch_size=BATCH, sampler=shuffle, drop_last=True)
    theirs = [bubble([answer_length(p) for p in batch]) for _ in range(EPOCHS) for batch in loader]
    assert len(theirs) == STEPS
    assert np.mean(ours) < 0.6 * np.mean(theirs)


def test_the_resumed_run_is_the_killed_one(runs):
    killed, resumed = runs
    assert sorted(metrics(resumed)) == list(range(RESUMED + 1, STEPS + 1))
    for step in range(RESUMED + 1, KILLED + 1):
        assert prompts(resumed, step) == prompts(killed, step)
    for step in range(RESUMED + SAVE, KILLED + 1, SAVE):
        before, after = data_state(killed, step), data_state(resumed, step)
        assert before["statistics"]["updates"].sum() == BATCH * step
        for part in (before, after):
            part.update(part.pop("statistics"))
        assert before.keys() == after.keys()
        for name, value in before.items():
            np.testing.assert_array_equal(value, after[name], err_msg=name)


def test_drafts_know_the_epoch_before(runs):
    """An answer repeats nothing in itself, and siblings run side by side: only the last epoch's text helps."""
    steps = metrics(runs[0])
    first, second = (
        [steps[step]["rollout/spec_decode/mean_accepted"] for step in range(begin, begin + STEPS_AN_EPOCH)]
        for begin in (1, 1 + STEPS_AN_EPOCH)
    )
    assert max(first) < 0.2 and min(second) > 1, (first, second)
