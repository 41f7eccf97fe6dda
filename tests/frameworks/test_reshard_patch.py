"""ALL_TO_ALL_RESHARD=1 between the patched veRL, Megatron-Core's groups and vLLM's loader."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="needs build_project.sh --target cpu")
import torch

from patchset.project import find_project
from qwen3_rl.errors import UserError
from qwen3_rl.moe_overlap.reshard import spread

SYNC = Path(__file__).parent / "reshard_sync.py"


def test_the_rollout_is_given_the_same_weights():
    path = [os.environ.get("PYTHONPATH", ""), str(find_project(None).path("megatron-core"))]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    done = subprocess.run([sys.executable, SYNC], env=env, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 cases: the same weights, and the bytes of the plan" in done.stdout


def test_rollout_placement_is_vllms():
    from vllm.model_executor.layers.fused_moe.layer import determine_expert_map

    for experts, ep in [(8, 1), (8, 4), (10, 4), (128, 16), (7, 5)]:
        for ep_rank in range(ep):
            count, expert_map, _ = determine_expert_map(ep, ep_rank, experts)
            mine = spread(experts, ep, ep_rank)
            assert len(mine) == count
            assert expert_map is None or (expert_map >= 0).nonzero().flatten().tolist() == list(mine)


class Layer(torch.nn.Module):
    """vLLM's loader of one layer's experts on one expert parallel rank, without the layer's kernels."""

    def __init__(self, experts: int, mine: range, hidden: int, ffn: int):
        from vllm.model_executor.layers.fused_moe.layer import FusedMoE

        class Loader(FusedMoE):
            tp_rank = 0

            def __init__(self):
                torch.nn.Module.__init__(self)

        super().__init__()
        loader = Loader()
        loader.quant_config = loader.quant_method = None
        loader.moe_config = SimpleNamespace(is_act_and_mul=True)
        loader._expert_map = torch.full((experts,), -1)
        loader._expert_map[list(mine)] = torch.arange(len(mine))
        for name, shape in (("w13_weight", (2 * ffn, hidden)), ("w2_weight", (hidden, ffn))):
            parameter = torch.nn.Parameter(torch.full((len(mine), *shape), torch.nan), requires_grad=False)
            parameter.weight_loader = loader.weight_loader
            loader.register_parameter(name, parameter)
        self.layers = torch.nn.ModuleList([torch.nn.Module()])
        self.layers[0].mlp = torch.nn.Module()
        self.layers[0].mlp.experts = loader
        self.quant_config, self.num_redundant_experts = None, 0
        self.config = SimpleNamespace(num_experts=experts)

    def loaded(self, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        from vllm.model_executor.models.qwen3_moe import Qwen3MoeModel

        self.get_expert_mapping = lambda: Qwen3MoeModel.get_expert_mapping(self)
        Qwen3MoeModel.load_weights(self, weights.items())
        return self.state_dict()


def test_vllms_loader_needs_the_ranks_own_experts_only():
    experts, mine, hidden, ffn = 8, spread(8, 4, 2), 4, 6
    whole = {
        f"layers.0.mlp.experts.{expert}.{part}_proj.weight": torch.randn(shape)
        for expert in range(experts)
        for part, shape in (("gate", (ffn, hidden)), ("up", (ffn, hidden)), ("down", (hidden, ffn)))
    }
    local = {name: weight for name, weight in whole.items() if int(name.split(".")[4]) in mine}
    from_all = Layer(experts, mine, hidden, ffn).loaded(whole)
    from_own = Layer(experts, mine, hidden, ffn).loaded(local)
    assert from_all.keys() == from_own.keys() and from_own
    for name, weight in from_all.items():
        assert not weight.isnan().any()
        assert torch.equal(weight, from_own[name])


def test_a_worker_whose_experts_did_not_all_come(monkeypatch):
    from verl.workers.rollout.vllm_rollout import bucketed_weight_transfer, utils

    experts, mine = 8, spread(8, 4, 2)
    model = Layer(experts, mine, hidden=4, ffn=6)
    loaded = []

    class Receiver:
        sent: tuple[int, ...] = ()

        def __init__(self, **_):
            pass

        def receive_weights(self, on_bucket_received):
            for expert in self.sent:  # a bucket each
                name = f"layers.0.mlp.experts.{expert}"
                on_bucket_received([(f"{name}.{part}_proj.weight", None) for part in ("gate", "up", "down")])

    worker = SimpleNamespace(
        device=torch.device("cpu"),
        model_runner=SimpleNamespace(model=model, vllm_config=None),
        _is_qat_model=False,
        _get_zmq_handle=lambda: "",
        _update_weights=lambda weights, **_: loaded.extend(weights),
    )
    monkeypatch.setattr(bucketed_weight_transfer, "BucketedWeightReceiver", Receiver)
    monkeypatch.setattr(utils, "is_fp8_model", lambda _: True)  # the way without vLLM's own steps before and after
    update = utils.vLLMColocateWorkerExtension.update_weights_from_ipc

    monkeypatch.setenv("ALL_TO_ALL_RESHARD", "1")
    Receiver.sent = tuple(mine)
    update(worker)
    assert len(loaded) == 3 * len(mine)
    Receiver.sent = (mine[0], 0, 1)
    with pytest.raises(UserError, match=rf"layers\.0\.mlp\.experts\.{mine[1]}\.down_proj\.weight and 2 more"):
        update(worker)
    monkeypatch.delenv("ALL_TO_ALL_RESHARD")
    update(worker)
