"""The train scripts under internal/, and dry runs of them in this process."""

import functools
import json
import os
from pathlib import Path

from qwen3_rl.dry_run.command import Command, command_of
from qwen3_rl.dry_run.result import Result, dry_run
from qwen3_rl.launch.environment import source_environment

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "internal").glob("train_*.sh"))


def env_script(script: Path) -> Path | None:
    """The env script that goes with a train script: the one named like its model (README.md)."""
    if "gpu" in script.stem:
        return None
    model = "32b" if "resampler" in script.stem else script.stem.split("_")[3]
    name = "qwen3_tiny_cpu_env.sh" if model == "tiny" else f"qwen3_{model}_env.sh"
    return ROOT / "internal" / name


@functools.cache
def environment_of(script: Path) -> dict[str, str]:
    env = env_script(script)
    return source_environment(env) if env else dict(os.environ)


@functools.cache
def _command(script: Path, settings: tuple[tuple[str, str], ...]) -> Command:
    return command_of(script, {**environment_of(script), **dict(settings)})


def check(script: Path, *overrides: str, **settings: str) -> Result:
    """The dry run of ``script`` with its env script, the settings in the environment, and further overrides."""
    if "resampler" in script.stem:
        settings = {
            "MODEL_PATH": "/w/Qwen3-32B",
            "DISTCP_PATH": "/w/d",
            "TRAIN_FILE": "/t",
            "TEST_FILE": "/t",
        } | settings
    command = _command(script, tuple(sorted(settings.items())))
    full = Command(command.module, command.config_name, (*command.overrides, *overrides), command.environment)
    return dry_run(full, ROOT / "frameworks")


def write_tiny_config(folder: Path) -> Path:
    """A model folder as far as a dry run needs one: the shape of the quickstart's model."""
    config = {
        "vocab_size": 259,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 4096,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder
