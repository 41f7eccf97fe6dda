"""GRPO with every optional feature off is stock veRL's: the same first step from the pristine and the patched tree."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from patchset.project import find_project
from qwen3_rl.cli import main

pytest.importorskip("torch", reason="needs build_project.sh --target cpu")

VERL = find_project(None).path("verl")
STEP = Path(__file__).with_name("first_step.py")
COMPARED = ("actor/", "critic/", "response_length/", "prompt_length/")


def first_step(model: Path, tree: Path, out: Path) -> dict[str, float]:
    """The metrics of a step of the veRL in ``tree`` that don't depend on time and place."""
    done = subprocess.run(
        [sys.executable, STEP, model, out],
        env={**os.environ, "PYTHONPATH": str(tree), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(out.read_text())
    assert result["tree"] == str(tree)
    return {name: value for name, value in result["metrics"].items() if name.startswith(COMPARED)}


def test_the_first_step_is_equal(tmp_path):
    assert main(["tiny-model", "--to", str(tmp_path / "model")]) == 0
    stock = tmp_path / "stock"
    stock.mkdir()
    base = subprocess.run(["git", "-C", VERL, "archive", "patchset/base"], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", stock], input=base, check=True)
    theirs = first_step(tmp_path / "model", stock, tmp_path / "stock.json")
    ours = first_step(tmp_path / "model", VERL, tmp_path / "ours.json")
    assert ours.keys() >= theirs.keys()
    for name, value in theirs.items():
        assert ours[name] == pytest.approx(value, rel=1e-6, abs=1e-6), name
    # It was a step that could have differed: two updates, at the second of which the policy is another.
    assert abs(theirs["actor/pg_loss"]) > 0.01
    assert theirs["actor/grad_norm"] > 0
    assert theirs["actor/ppo_kl"] != 0
