"""The switch: when it is on, and what it refuses."""

import pytest

pytest.importorskip("torch", reason="needs build_project.sh --target cpu")
pytest.importorskip("omegaconf")
import torch
from omegaconf import OmegaConf

from qwen3_rl.errors import UserError
from qwen3_rl.moe_overlap.reshard_config import SWITCH
from qwen3_rl.moe_overlap.reshard_hook import expert_reshard, rows_of


def rollout(**changes):
    settings = {"name": "vllm", "expert_parallel_size": 16, "pipeline_model_parallel_size": 1, "engine_kwargs": {}}
    config = OmegaConf.create(settings | changes)
    OmegaConf.set_struct(config, True)
    return config


@pytest.mark.parametrize("value", [None, "", "0"])
def test_off_by_default(monkeypatch, value):
    monkeypatch.delenv(SWITCH, raising=False)
    if value is not None:
        monkeypatch.setenv(SWITCH, value)
    assert expert_reshard(rollout(name="sglang"), bridge=object()) is None


def test_on(monkeypatch):
    monkeypatch.setenv(SWITCH, "1")
    hook = expert_reshard(rollout(), bridge=None)
    assert hook.rollout_ep == 16
    assert hook.takes("module.decoder.layers.0.mlp.experts.linear_fc1.weight0")
    assert hook.takes("decoder.layers.0.mlp.experts.weight2")
    assert not hook.takes("decoder.layers.0.mlp.router.weight")
    assert not hook.takes("decoder.layers.0.mlp.shared_experts.linear_fc1.weight")


@pytest.mark.parametrize(
    ("changes", "bridge", "word"),
    [
        ({"name": "sglang"}, None, "rollout.name=sglang"),
        ({}, object(), "use_mbridge=True"),
        ({"expert_parallel_size": 1}, None, "VLLM_ENABLE_EXPERT_PARALLEL=1"),
        ({"pipeline_model_parallel_size": 2}, None, "rollout.pipeline_model_parallel_size=2"),
        ({"engine_kwargs": {"vllm": {"enable_eplb": True}}}, None, "enable_eplb"),
        ({"engine_kwargs": {"vllm": {"additional_config": {"dynamic_eplb": True}}}}, None, "dynamic_eplb"),
        ({"engine_kwargs": {"vllm": {"additional_config": {"expert_map_path": "a"}}}}, None, "expert_map_path=a"),
    ],
)
def test_what_the_switch_refuses(monkeypatch, changes, bridge, word):
    monkeypatch.setenv(SWITCH, "1")
    with pytest.raises(UserError, match=f"{SWITCH}=1 does not work with") as caught:
        expert_reshard(rollout(**changes), bridge)
    assert word in str(caught.value)


def test_a_value_that_is_neither(monkeypatch):
    monkeypatch.setenv(SWITCH, "yes")
    with pytest.raises(UserError, match=f"{SWITCH}=yes"):
        expert_reshard(rollout(), None)


def test_grouped_and_stock_experts_give_the_same_rows():
    experts, hidden, part = 3, 5, 2
    fc1 = torch.randn(experts, 2 * part, hidden)
    fc2 = torch.randn(experts, hidden, part)
    stock = {f"linear_fc{n}.weight{i}": w[i] for n, w in ((1, fc1), (2, fc2)) for i in range(experts)}
    grouped = {
        "weight1": torch.stack([w.t() for w in fc1]).view(hidden, -1),
        "weight2": torch.stack([w.t() for w in fc2]).view(-1, hidden),
    }
    rows = rows_of(stock, experts)
    assert torch.equal(rows, torch.cat([fc1.flatten(1), fc2.flatten(1)], 1))
    assert torch.equal(rows_of(grouped, experts), rows)
