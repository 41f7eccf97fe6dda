"""DAPO on the tiny CPU job: dynamic sampling in the real trainer, five steps."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GROUP, TRAIN_BATCH, GEN_BATCH, STEPS = 8, 4, 8, 5
OVERRIDES = [
    f"+data.gen_batch_size={GEN_BATCH}",
    "+algorithm.filter_groups.enable=True",
    "+algorithm.filter_groups.metric=acc",
    "+algorithm.filter_groups.max_num_gen_batches=30",
    "actor_rollout_ref.actor.clip_ratio_high=0.28",
    "actor_rollout_ref.actor.clip_ratio_c=10.0",
    "actor_rollout_ref.actor.loss_agg_mode=token-mean",
    f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={TRAIN_BATCH // 2 * GROUP}",
    "reward.reward_manager.name=dapo",
    "+reward.reward_kwargs.max_resp_len=8",
    "+reward.reward_kwargs.overlong_buffer_cfg.enable=True",
    "+reward.reward_kwargs.overlong_buffer_cfg.len=4",
    "+reward.reward_kwargs.overlong_buffer_cfg.penalty_factor=0.1",
    "+reward.reward_kwargs.overlong_buffer_cfg.log=False",
]

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        not (ROOT / ".venv" / ".built-for").is_file(), reason="needs build_project.sh --target cpu in this checkout"
    ),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(metrics of each step, rows of each step's batch, peak memory in bytes, model folder)."""
    folder = tmp_path_factory.mktemp("dapo")
    tmp = Path(subprocess.check_output(["mktemp", "-d", "/tmp/e-XXXX"], text=True).strip())  # short: sockets
    for command in (
        ["tiny-model", "--to", str(folder / "model")],
        ["data", "arithmetic", "--to", str(folder / "data"), "--train-rows", "512", "--test-rows", "8"],
    ):
        subprocess.run([str(ROOT / ".venv/bin/qwen3-rl"), *command], check=True)
    done = subprocess.run(
        ["bash", "ray_start_npu.sh", "internal/train_grpo_qwen3_tiny_cpu.sh", "internal/qwen3_tiny_cpu_env.sh",
         *OVERRIDES, f"trainer.rollout_data_dir={folder / 'batches'}"],
        cwd=ROOT,
        env={
            **os.environ,
            "TRAINER": "qwen3_rl.dapo.main",
            "MODEL_PATH": str(folder / "model"),
            "DATA_DIR": str(folder / "data"),
            "TRAIN_BATCH": str(TRAIN_BATCH),
            "RESPONSES": str(GROUP),
            "STEPS": str(STEPS),
            "OUTPUTS_DIR": str(folder),
            "RUN_NAME": "run",
            "TMPDIR": str(tmp),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=800,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
    steps = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    batches = [
        [json.loads(line) for line in (folder / "batches" / f"{step}.jsonl").read_text().splitlines()]
        for step in range(1, STEPS + 1)
    ]
    yield steps, batches, float(re.search(r"peak memory ([\d.]+) GB", done.stdout)[1]) * 1e9, folder / "model"
    subprocess.run(["rm", "-rf", tmp], check=True)


def test_the_counts_are_right(run):
    steps, *_ = run
    assert [step["training/global_step"] for step in steps] == list(range(1, STEPS + 1))
    for step in steps:
        generated = step["train/groups_generated"]
        assert generated == step["train/num_gen_batches"] * GEN_BATCH
        assert 0 <= step["rollout/spec_decode/gate"] <= 1  # SAM's metrics survive the joining of generation batches
        assert generated - step["train/groups_filtered"] - step["train/groups_surplus"] == TRAIN_BATCH


def test_groups_were_filtered_and_refilled(run):
    """Nearly all responses of the untrained model are worth nothing, and so are about three in four of its groups."""
    steps, *_ = run
    assert sum(step["train/groups_filtered"] for step in steps) > 0
    assert any(step["train/num_gen_batches"] > 1 for step in steps)


def test_every_group_that_was_trained_on_has_different_scores(run):
    batches = run[1]
    for rows in batches:
        assert len(rows) == TRAIN_BATCH * GROUP
        groups = [rows[start : start + GROUP] for start in range(0, len(rows), GROUP)]
        for group in groups:
            assert len({row["input"] for row in group}) == 1
            assert len({row["acc"] for row in group}) > 1


def test_long_responses_lose_reward(run):
    """score = acc + penalty: none up to 4 tokens, 0.1 at 8 (the tiny tokenizer has a token a byte)."""
    penalties = [row["score"] - row["acc"] for rows in run[1] for row in rows]
    assert all(-0.1001 <= penalty <= 1e-6 for penalty in penalties)
    assert min(penalties) == pytest.approx(-0.1, abs=1e-4)


def test_the_policy_was_trained(run):
    steps, *_ = run
    assert all(step["actor/grad_norm"] > 0 for step in steps)


def test_the_memory_is_near_the_dry_runs_estimate(run):
    from qwen3_rl.dry_run.command import command_of
    from qwen3_rl.dry_run.result import dry_run
    from qwen3_rl.launch.environment import source_environment

    environment = source_environment(ROOT / "internal" / "qwen3_tiny_cpu_env.sh")
    environment |= {"TRAINER": "qwen3_rl.dapo.main", "MODEL_PATH": str(run[3]), "TRAIN_BATCH": str(TRAIN_BATCH)}
    command = command_of(ROOT / "internal" / "train_grpo_qwen3_tiny_cpu.sh", environment, tuple(OVERRIDES))
    estimate = dry_run(command, ROOT / "frameworks").memory
    assert run[2] == pytest.approx(estimate.machine_bytes, rel=0.25)
