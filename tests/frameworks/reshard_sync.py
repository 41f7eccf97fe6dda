"""veRL's weight synchronisation with and without ALL_TO_ALL_RESHARD=1: python tests/frameworks/reshard_sync.py

The patched rollout_mode, per_tensor_generator and weight converter with Megatron-Core's real groups, in four processes
with gloo; the models are parameters without a forward pass. The weights that the rollout is given are compared, and
the bytes that a rank receives for them. Needs megatron-core on PYTHONPATH.
"""

import asyncio
import os
import tempfile
from types import SimpleNamespace

import torch
from megatron.core import mpu
from megatron.core.transformer import TransformerConfig
from omegaconf import OmegaConf
from torch import distributed, multiprocessing, nn
from verl.models.mcore.weight_converter import McoreToHFWeightConverterQwen3Moe
from verl.workers.megatron_workers import ActorRolloutRefWorker

from qwen3_rl.moe_overlap.reshard import Sizes, TrainLayout, plan_reshard, spread, traffic

WORLD, LAYERS, EXPERTS, HIDDEN, FFN = 4, 3, 8, 6, 4
# (tensor, pipeline, expert, expert tensor parallel size), kind of experts, the rollout's expert parallel size.
CASES = [
    ((1, 2, 2, 1), "stock", 4),
    ((1, 1, 2, 2), "stock", 4),
    ((2, 2, 1, 2), "grouped", 2),
]


def whole_model() -> dict[str, torch.Tensor]:
    """Every weight under its Hugging Face name."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        shapes[f"model.layers.{layer}.mlp.gate.weight"] = (EXPERTS, HIDDEN)
        for expert in range(EXPERTS):
            prefix = f"model.layers.{layer}.mlp.experts.{expert}"
            shapes |= {f"{prefix}.{part}_proj.weight": (FFN, HIDDEN) for part in ("gate", "up")}
            shapes[f"{prefix}.down_proj.weight"] = (HIDDEN, FFN)
    return {name: torch.randn(shape, generator=generator).bfloat16() for name, shape in shapes.items()}


def add(root: nn.Module, name: str, value: torch.Tensor) -> None:
    """Register ``value`` as ``name`` in a tree of modules."""
    *path, last = name.split(".")
    for part in path:
        if part not in root._modules:
            root.add_module(part, nn.Module())
        root = root._modules[part]
    root.register_parameter(last, nn.Parameter(value.clone()))


def stage_of(whole: dict[str, torch.Tensor], first_layers: int, kind: str) -> nn.Module:
    """This rank's model in Megatron-Core's names and layout; the first of two stages has ``first_layers`` layers."""
    pp, stage = mpu.get_pipeline_model_parallel_world_size(), mpu.get_pipeline_model_parallel_rank()
    etp, shard = mpu.get_expert_tensor_parallel_world_size(), mpu.get_expert_tensor_parallel_rank()
    layers = range(LAYERS) if pp == 1 else (range(first_layers), range(first_layers, LAYERS))[stage]
    model = nn.Module()
    for local, layer in enumerate(layers):
        prefix = f"decoder.layers.{local}.mlp"
        add(model, f"{prefix}.router.weight", whole[f"model.layers.{layer}.mlp.gate.weight"])
        fc1s, fc2s = [], []
        for expert in spread(EXPERTS, mpu.get_expert_model_parallel_world_size(), mpu.get_expert_model_parallel_rank()):
            parts = [
                whole[f"model.layers.{layer}.mlp.experts.{expert}.{part}_proj.weight"].chunk(etp, dim)[shard]
                for part, dim in (("gate", 0), ("up", 0), ("down", 1))
            ]
            fc1s.append(torch.cat(parts[:2]))
            fc2s.append(parts[2])
        if kind == "stock":
            for n, weights in ((1, fc1s), (2, fc2s)):
                for i, weight in enumerate(weights):
                    add(model, f"{prefix}.experts.linear_fc{n}.weight{i}", weight.contiguous())
        else:  # as GroupedMLP's forward pass reads them: weight1.view(E, H, -1), weight2.view(E, -1, H)
            add(model, f"{prefix}.experts.weight1", torch.stack([w.t() for w in fc1s]).view(HIDDEN, -1))
            add(model, f"{prefix}.experts.weight2", torch.stack([w.t() for w in fc2s]).view(-1, HIDDEN))
    if stage == pp - 1:
        add(model, "decoder.final_layernorm.weight", whole["model.norm.weight"])
    return model


async def synchronise(model: nn.Module, config: TransformerConfig, rollout_ep: int) -> dict[str, torch.Tensor]:
    """What the rollout is given by the worker's own rollout_mode."""
    given = {}

    class Rollout:
        sleep_level = 2

        async def update_weights(self, weights, **_):
            for name, weight in weights:
                assert name not in given
                given[name] = weight.clone().view(-1).view(weight.shape)  # as the sender: it takes contiguous ones

    rollout = OmegaConf.create(
        {
            "name": "vllm",
            "expert_parallel_size": rollout_ep,
            "pipeline_model_parallel_size": 1,
            "free_cache_engine": False,
            "engine_kwargs": {"vllm": {}},
        }
    )
    OmegaConf.set_struct(rollout, True)
    worker = SimpleNamespace(
        _is_offload_param=False,
        peft_merge=False,
        peft_cls=None,
        bridge=None,
        config=SimpleNamespace(rollout=rollout),
        rollout=Rollout(),
        actor=SimpleNamespace(actor_module=[model]),
        actor_model_config=SimpleNamespace(tie_word_embeddings=False),
        weight_converter=McoreToHFWeightConverterQwen3Moe(None, config),
        tf_config=config,
        layer_name_mapping={"qkv_layer_name": "self_attention.linear_qkv.", "gate_proj_layer_name": "linear_fc1."},
    )
    await ActorRolloutRefWorker.rollout_mode(worker)
    return given


def count_received() -> list[int]:
    """Bytes of tensors that this rank receives by the synchronisation's collectives, one number a call."""
    received = []

    def counting(name: str, size) -> None:
        collective = getattr(distributed, name)

        def counted(*args, **kwargs):
            received.append(size(*args, **kwargs))
            return collective(*args, **kwargs)

        setattr(distributed, name, counted)

    counting("broadcast", lambda tensor, src, group: tensor.nbytes * (src != distributed.get_rank()))
    counting("all_gather", lambda parts, tensor, group: sum(part.nbytes for part in parts) - tensor.nbytes)
    counting("all_to_all_single", lambda output, *_, **__: output.nbytes)
    return received


def check(case, rank: int, received: list[int]) -> None:
    (tp, pp, ep, etp), kind, rollout_ep = case
    mpu.initialize_model_parallel(
        tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp,
        expert_model_parallel_size=ep,
        expert_tensor_parallel_size=etp,
        create_gloo_process_groups=False,
    )
    config = TransformerConfig(
        num_layers=LAYERS,
        hidden_size=HIDDEN,
        num_attention_heads=1,
        num_moe_experts=EXPERTS,
        moe_ffn_hidden_size=FFN,
        add_bias_linear=False,
        pipeline_model_parallel_size=pp,
        pipeline_dtype=torch.bfloat16,
        num_layers_in_first_pipeline_stage=2 if pp == 2 else None,
    )
    whole = whole_model()
    model = stage_of(whole, 2, kind)
    plan = plan_reshard(TrainLayout(WORLD, ((0, 1), (2,)) if pp == 2 else ((0, 1, 2),), ep, etp), rollout_ep, EXPERTS)
    moved = traffic(plan, Sizes(HIDDEN, FFN, itemsize=2))
    others = sum(w.nbytes for name, w in whole.items() if ".experts." not in name)
    others -= sum(w.nbytes for name, w in model.named_parameters() if ".experts." not in name)
    if kind == "stock":
        os.environ["ALL_TO_ALL_RESHARD"] = "0"
        received.clear()
        compare(asyncio.run(synchronise(model, config, rollout_ep)), whole, case)
        assert sum(received) == moved.gathered[rank] + others, (case, rank, sum(received))
    os.environ["ALL_TO_ALL_RESHARD"] = "1"
    received.clear()
    mine = spread(EXPERTS, rollout_ep, rank % rollout_ep)
    wanted = {name: w for name, w in whole.items() if ".experts." not in name or int(name.split(".")[5]) in mine}
    compare(asyncio.run(synchronise(model, config, rollout_ep)), wanted, case)
    assert sum(received) == moved.lacking[rank] + others, (case, rank, sum(received))
    mpu.destroy_model_parallel()


def compare(given: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], case) -> None:
    assert given.keys() == wanted.keys(), (case, given.keys() ^ wanted.keys())
    for name, weight in wanted.items():
        assert given[name].dtype == weight.dtype and torch.equal(given[name], weight), (case, name)


def run_rank(rank: int, rendezvous: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=WORLD)
    received = count_received()
    for case in CASES:
        check(case, rank, received)
    distributed.barrier()
    if rank == 0:
        print(f"{len(CASES)} cases: the same weights, and the bytes of the plan")
    distributed.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        # Forked: the frameworks are imported once.
        multiprocessing.start_processes(run_rank, (f"{folder}/rendezvous",), WORLD, start_method="fork")
