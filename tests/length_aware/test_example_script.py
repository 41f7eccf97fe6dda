"""internal/train_grpo_qwen3_resampler_example.sh: what it asks for, and that the pinned veRL knows every key of it."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "internal/train_grpo_qwen3_resampler_example.sh"
GIVEN = {"MODEL_PATH": "/m o/del", "DISTCP_PATH": "/dist", "TRAIN_FILE": "/train.parquet", "TEST_FILE": "/test.parquet"}


def run_script(folder: Path, environment: dict[str, str], *overrides: str) -> subprocess.CompletedProcess:
    """Runs the script with a python3 that prints its arguments instead."""
    (folder / "python3").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    (folder / "python3").chmod(0o755)
    return subprocess.run(
        ["bash", SCRIPT, *overrides],
        env={"PATH": f"{folder}:{os.environ['PATH']}"} | environment,
        capture_output=True,
        text=True,
    )


def configuration(folder: Path, overrides: tuple[str, ...] = (), **settings: str):
    pytest.importorskip("torch", reason="needs build_project.sh --target cpu")
    import verl.trainer
    from hydra import compose, initialize_config_dir

    done = run_script(folder, GIVEN | settings, *overrides)
    assert done.returncode == 0, done.stderr
    module, name, *arguments = done.stdout.splitlines()[1:]
    assert (module, name) == ("verl.trainer.main_ppo", "--config-name=ppo_megatron_trainer")
    with initialize_config_dir(str(Path(verl.trainer.__path__[0], "config").resolve()), version_base=None):
        return compose("ppo_megatron_trainer", [a for a in arguments if not a.startswith("hydra.")])


def test_all_that_is_missing_is_named(tmp_path):
    done = run_script(tmp_path, {"TRAIN_FILE": "/train.parquet", "TEST_FILE": ""})
    assert done.returncode == 2
    assert "not set: MODEL_PATH DISTCP_PATH TEST_FILE\n" in done.stderr


def test_the_sampler_the_cap_and_the_checkpoint(tmp_path):
    from qwen3_rl.length_aware.cap import read_cap
    from qwen3_rl.length_aware.sampler import read_settings

    config = configuration(tmp_path, ("trainer.total_epochs=2",))
    settings, ema_decay = read_settings(config.data)
    assert (settings.batch_size, settings.bucket_size, ema_decay) == (32, 1024, 0.7)
    assert settings.shuffle_batch_blocks
    assert not settings.shuffle_first_epoch
    assert config.actor_rollout_ref.model.path == "/m o/del"
    assert config.actor_rollout_ref.ref.megatron.dist_checkpointing_path == "/dist"
    assert config.trainer.save_freq == -1
    assert config.trainer.total_epochs == 2
    assert read_cap(config.ray_kwargs.ray_init.runtime_env.env_vars) is None

    config = configuration(tmp_path, SAVE_CKPT_ENABLE="1", VLLM_ROLLOUT_EARLY_STOP_ENABLE="1")
    assert config.trainer.save_freq == 10
    assert read_cap(config.ray_kwargs.ray_init.runtime_env.env_vars) == (2.0, 10000)


def test_the_baseline_differs_in_the_order_alone(tmp_path):
    from omegaconf import OmegaConf

    def flat(config) -> dict:
        return {str(path): value for path, value in leaves(OmegaConf.to_container(config, resolve=False))}

    def leaves(node, path=()):
        if isinstance(node, dict):
            for key, value in node.items():
                yield from leaves(value, (*path, key))
        else:
            yield ".".join(map(str, path)), str(node)

    sampler = flat(configuration(tmp_path))
    baseline = flat(configuration(tmp_path, VLLM_EAGER_BASELINE_NO_RESAMPLE="1", VLLM_ROLLOUT_EARLY_STOP_ENABLE="1"))
    different = {key for key in sampler | baseline if sampler.get(key) != baseline.get(key)}
    names = ("class_path", "class_name", "bucket_size", "ema_decay", "shuffle_batch_blocks")
    assert different == {"data.shuffle", *(f"data.sampler.{name}" for name in names)}
