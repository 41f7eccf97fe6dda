"""The executor against the all-gather, bit for bit."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs build_project.sh --target cpu")
import torch

from qwen3_rl.moe_overlap.reshard import Sizes, plan_reshard, traffic
from tests.moe_overlap.reshard_lab import HIDDEN, all_gather_way, model_for, pairs, same_as_gathered, simulate

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("world", range(1, 17))
def test_every_pair_of_layouts_in_one_process(world):
    """All ranks' buffers, cut and joined as all-to-all-v does; as many experts as ranks."""
    for train, rollout_ep in pairs(world):
        plan = plan_reshard(train, rollout_ep, experts=world)
        model = model_for(train, world)
        gathered = all_gather_way(model, train)
        assert all(map(torch.equal, gathered, model))
        results, received = simulate(plan, model)
        for layers in results.values():
            assert sorted(layer.layer for layer in layers) == list(range(len(model.gate)))
            assert all(same_as_gathered(layer, gathered) for layer in layers)
        assert received == traffic(plan, Sizes(HIDDEN, 2 * train.etp, itemsize=2)).lacking


def test_experts_that_the_rollout_cannot_share_evenly():
    (train, _), *_ = pairs(4)
    plan = plan_reshard(train, 4, experts=6)
    model = model_for(train, 6)
    results, _ = simulate(plan, model)
    assert [len(results[rank][0].experts) for rank in range(4)] == [2, 2, 1, 1]
    assert all(same_as_gathered(layer, model) for layers in results.values() for layer in layers)


def test_every_pair_of_layouts_in_four_processes():
    done = subprocess.run(
        [sys.executable, "-m", "tests.moe_overlap.reshard_ranks", "4"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "30 pairs, 4 processes: bit-equal, bytes at the lower bound" in done.stdout
