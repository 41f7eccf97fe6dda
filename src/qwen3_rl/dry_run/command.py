"""What a train script would start: it is run with a `python3` first on PATH that writes down its arguments and ends."""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from qwen3_rl.errors import UserError
from qwen3_rl.launch.settings import read_settings

# Main modules that take veRL's configuration, with the configuration each has unless --config-name says otherwise.
TRAINERS = {"verl.trainer.main_ppo": "ppo_trainer", "qwen3_rl.dapo.main": "ppo_trainer"}

# Only `python3 -m TRAINER` is recorded: a script may use Python for other things.
SHIM = """#!/usr/bin/env bash
if [[ ${1:-} == -m && " $DRY_RUN_TRAINERS " == *" ${2:-} "* ]]; then
    printf '%s\\0' "$@" >"$DRY_RUN_FOLDER/arguments"
    env -0 >"$DRY_RUN_FOLDER/environment"
    exit 0
fi
exec "$DRY_RUN_PYTHON" "$@"
"""


@dataclass(frozen=True)
class Command:
    """One start of a trainer: its main module, veRL's configuration file, Hydra overrides, the environment."""

    module: str
    config_name: str
    overrides: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


def command_of(script: Path, environment: dict[str, str], arguments: tuple[str, ...] = ()) -> Command:
    """The trainer that ``bash script arguments...`` would start.

    Raises UserError if it starts none, or for a setting that the launcher would refuse before.
    """
    read_settings(environment)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("python3", "python"):
            shim = Path(folder) / name
            shim.write_text(SHIM)
            shim.chmod(0o755)
        ran = subprocess.run(
            ["bash", str(script), *arguments],
            env={
                **environment,
                "PATH": f"{folder}:{environment.get('PATH') or os.defpath}",
                "DRY_RUN_FOLDER": folder,
                "DRY_RUN_PYTHON": sys.executable,
                "DRY_RUN_TRAINERS": " ".join(TRAINERS),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        recorded = Path(folder) / "arguments"
        if not recorded.exists():
            raise UserError(
                f"{script} ended (exit code {ran.returncode}) without starting {' or '.join(TRAINERS)}"
                + (f": {ran.stderr.strip()}" if ran.stderr.strip() else ""),
                "correct the script, or the settings it takes from the environment",
            )
        words = _split(recorded.read_text())
        variables = dict(entry.split("=", 1) for entry in _split((Path(folder) / "environment").read_text()))
    return parse_command(words[1], words[2:], variables)


def parse_command(module: str, words: list[str], environment: dict[str, str]) -> Command:
    """Split a trainer's arguments into the configuration's name and overrides. Raises UserError for other options."""
    config_name = TRAINERS[module]
    overrides = []
    rest = iter(words)
    for word in rest:
        if word.startswith("--config-name"):
            config_name = word.partition("=")[2] or next(rest, "")
        elif word.startswith("-"):
            raise UserError(f"the trainer's option {word} is not known here", "use --config-name and overrides only")
        else:
            overrides.append(word)
    return Command(module, config_name, tuple(overrides), environment)


def _split(text: str) -> list[str]:
    return text.split("\0")[:-1]
