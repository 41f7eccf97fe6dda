"""The Qwen3-4B script on the CPU at a reduced size: the same script with settings and overrides only, two steps."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
SMALL = [
    "data.max_prompt_length=96",
    "data.max_response_length=16",
    f"{ROLLOUT}.max_model_len=128",
    f"{ROLLOUT}.max_num_seqs=64",
    f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes=16",
    f"{ROLLOUT}.agent.num_workers=1",
    "reward.num_workers=1",
]
# docs/cpu.md says why.
ON_A_CPU = [
    "data.dataloader_num_workers=0",
    "actor_rollout_ref.model.use_remove_padding=False",
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    f"{ACTOR}.strategy=fsdp2",
    f"{ACTOR}.fsdp_config.model_dtype=fp32",
    f"{ACTOR}.fsdp_config.dtype=float32",
    f"{ACTOR}.use_torch_compile=False",
    "actor_rollout_ref.ref.fsdp_config.model_dtype=fp32",
    "actor_rollout_ref.ref.fsdp_config.dtype=float32",
    f"{ROLLOUT}.dtype=float32",
    f"{ROLLOUT}.free_cache_engine=False",
    f"+{ROLLOUT}.enable_sleep_mode=False",
]

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        not (ROOT / ".venv" / ".built-for").is_file(), reason="needs build_project.sh --target cpu in this checkout"
    ),
]


def write_rows(folder: Path) -> None:
    """Word problems in GSM8K's form, as veRL's own preprocessing writes them."""
    from qwen3_rl.data.cli import write_parquet

    folder.mkdir()
    for split, count in (("train", 32), ("test", 4)):
        rows = [
            {
                "data_source": "openai/gsm8k",
                "prompt": [{"role": "user", "content": f"Ann has {i} pens and buys 3. How many? Answer after ####."}],
                "ability": "math",
                "reward_model": {"style": "rule", "ground_truth": str(i + 3)},
                "extra_info": {"split": split, "index": i},
            }
            for i in range(count)
        ]
        write_parquet(rows, folder / f"{split}.parquet")


def test_two_steps(tmp_path):
    tmp = Path(subprocess.check_output(["mktemp", "-d", "/tmp/e-XXXX"], text=True).strip())  # short: sockets
    write_rows(tmp_path / "gsm8k")
    subprocess.run([str(ROOT / ".venv/bin/qwen3-rl"), "tiny-model", "--to", str(tmp_path / "model")], check=True)
    done = subprocess.run(
        ["bash", "ray_start_npu.sh", "internal/train_grpo_qwen3_4b_16die_gsm8k.sh", "internal/qwen3_tiny_cpu_env.sh",
         *SMALL, *ON_A_CPU],
        cwd=ROOT,
        env={
            **os.environ,
            "MODEL_PATH": str(tmp_path / "model"),
            "DATA_DIR": str(tmp_path / "gsm8k"),
            "TRAIN_BATCH": "8",
            "MINI_BATCH": "4",
            "ROLLOUT_TP": "1",
            "STEPS": "2",
            "TEST_EVERY": "2",
            "OUTPUTS_DIR": str(tmp_path),
            "RUN_NAME": "run",
            "TMPDIR": str(tmp),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=800,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "training/global_step" in line]
    assert [step["training/global_step"] for step in steps] == [1, 2]
    for step in steps:
        assert step["actor/entropy"] > 1  # an untrained model's
        assert abs(step["actor/kl_loss"]) < 1e-2
        assert step["actor/grad_norm"] > 0
    assert any("val-core/openai/gsm8k/" in key for key in steps[1])
    subprocess.run(["rm", "-rf", tmp], check=True)
