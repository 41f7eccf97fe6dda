"""The golden tables, of v0.13.0 and of the patched tree, and the share of eager steps."""

import os
from pathlib import Path

import pytest
from eager_share import replay, ways
from graph_tables import GOLDEN, tables

from qwen3_rl.sam.traces import TraceGroup, load_traces


@pytest.mark.skipif("PYTHONPATH" in os.environ, reason="another tree is under test")
def test_the_tables_are_what_the_engine_does():
    """If this fails: .venv-ascend/bin/python tests/ascend/graph_tables.py --write, and read the difference."""
    assert {path.name: path.read_text() for path in GOLDEN.iterdir()} == tables()


def made_up_traces() -> list[TraceGroup]:
    """Two prompts of four siblings, whose texts repeat themselves and end at different lengths."""
    import numpy as np

    rng = np.random.default_rng(0)
    groups = []
    for _ in range(2):
        text = np.tile(rng.integers(0, 40, 30), 8)
        siblings = [
            np.where(rng.random(240) < 0.1, rng.integers(0, 40, 240), text)[: rng.integers(120, 240)] for _ in range(4)
        ]
        groups.append(TraceGroup(rng.integers(0, 40, 12).astype(np.int32), [[s.astype(np.int32) for s in siblings]]))
    return groups


@pytest.mark.parametrize("limit", [None, 4])
def test_decode_steps_replay_graphs(limit):
    before, padded, after = (replay(how, made_up_traces()) for how in ways(8, limit))
    assert before.percent > 30
    assert padded.eager["ragged"] * 4 < before.eager["ragged"] or limit
    assert ("one token" in padded.eager, "one token" in after.eager) == (True, False)
    assert after.percent < 4  # a request near the model's length leaves the others unpadded


@pytest.mark.skipif(not os.environ.get("ROLLOUT_TRACES"), reason="ROLLOUT_TRACES names no file of real rollouts")
def test_real_rollouts():
    groups = load_traces(Path(os.environ["ROLLOUT_TRACES"]))
    before, padded, _ = ways(64, None)
    *_, after = ways(64, 8)
    assert replay(before, groups).percent > 50
    assert replay(padded, groups).percent < 2
    assert replay(after, groups).percent < 2
