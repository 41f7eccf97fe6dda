"""ALL_TO_ALL_RESHARD=1 in veRL's weight synchronisation: experts come by `reshard`, everything else as before.

veRL hands a trainer process's weights to the vLLM worker on the same device, and that worker drops experts of other
ranks, so each process yields just its worker's.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from qwen3_rl.errors import UserError
from qwen3_rl.moe_overlap.layout import fc1_of, fc2_of
from qwen3_rl.moe_overlap.reshard import Place, TrainLayout, plan_reshard, reshard
from qwen3_rl.moe_overlap.reshard_config import SWITCH, objections


def expert_reshard(rollout, bridge) -> "ExpertReshard | None":
    """What `per_tensor_generator` takes experts from, None with the switch off; ``rollout`` is veRL's configuration.

    Raises UserError where the switch would do nothing or the rollout places experts in another way.
    """
    value = os.environ.get(SWITCH) or "0"
    if value == "0":
        return None
    if value != "1":
        raise UserError(f"{SWITCH}={value}", f"set {SWITCH} to 1 or 0")
    for wrong, next_step in objections(rollout, bridge is not None):
        raise UserError(f"{SWITCH}=1 does not work with {wrong}", f"{next_step}, or set {SWITCH}=0")
    return ExpertReshard(rollout.expert_parallel_size)


@dataclass(frozen=True)
class ExpertReshard:
    rollout_ep: int

    def takes(self, name: str) -> bool:
        """Is ``name``, of a parameter of Megatron-Core's, left to this?"""
        return "decoder.layers." in name and ".mlp.experts." in name

    def experts(self, models: list, converter) -> Iterator[tuple[str, torch.Tensor]]:
        """(Hugging Face name, weight) of the worker's experts. ``models``: this rank's, one a virtual stage;
        ``converter``: veRL's for the architecture."""
        config = converter.mcore_config
        layers = local_layers(models, config, self.takes)
        train = train_layout(tuple(sorted(layers)))
        plan = plan_reshard(train, self.rollout_ep, config.num_moe_experts)

        def local(layer: int) -> torch.Tensor:
            return rows_of(layers[layer], config.num_moe_experts // train.ep)

        like = local(min(layers))[:0].clone()
        for got in reshard(plan, local, config.hidden_size, like):
            for i, expert in enumerate(got.experts):
                for part, weights in (("linear_fc1", [got.gate[i], got.up[i]]), ("linear_fc2", [got.down[i]])):
                    name = f"decoder.layers.{got.layer}.mlp.experts.{part}.weight{expert}"
                    yield from zip(*converter.convert_param(name, weights), strict=True)


def local_layers(models: list, config, takes: Callable[[str], bool]) -> dict[int, dict[str, torch.Tensor]]:
    """This rank's expert parameters: layer, numbered over the model, to name after `experts.` to tensor."""
    from megatron.core import mpu
    from verl.utils.megatron_utils import unwrap_model
    from verl.utils.model import normalize_model_name

    layers = defaultdict(dict)
    for virtual, model in enumerate(models):
        for name, parameter in unwrap_model(model).named_parameters():
            if takes(name):
                full = normalize_model_name(name, mpu.get_pipeline_model_parallel_rank(), virtual, config)
                layer, _, short = full.partition("decoder.layers.")[2].partition(".mlp.experts.")
                layers[int(layer)][short] = parameter.detach()
    return layers


def train_layout(layers: tuple[int, ...]) -> TrainLayout:
    """The layout of the job, from Megatron-Core's groups; ``layers`` are this rank's. Collective over all ranks."""
    from megatron.core import mpu

    place = Place(
        mpu.get_expert_tensor_parallel_rank(),
        mpu.get_expert_model_parallel_rank(),
        mpu.get_expert_data_parallel_rank(),
        mpu.get_pipeline_model_parallel_rank(),
    )
    ranks = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(ranks, (place, layers))
    train = TrainLayout(
        world=len(ranks),
        stages=tuple(layers for _, layers in sorted({(place.stage, layers) for place, layers in ranks})),
        ep=mpu.get_expert_model_parallel_world_size(),
        etp=mpu.get_expert_tensor_parallel_world_size(),
    )
    for rank, (place, _) in enumerate(ranks):
        if train.place(rank) != place:
            raise UserError(
                f"{SWITCH}=1 expects Megatron-Core's rank order tp-cp-ep-dp-pp: rank {rank} is {place}",
                f"set {SWITCH}=0",
            )
    return train


def rows_of(parameters: Mapping[str, torch.Tensor], experts: int) -> torch.Tensor:
    """One layer's rows [experts, row] from Megatron-Core's parameters of either kind; their shapes: see `layout`."""
    rows = []
    for i in range(experts):
        if "weight1" in parameters:
            fc1, fc2 = fc1_of(parameters["weight1"], experts, i), fc2_of(parameters["weight2"], experts, i)
        else:
            fc1, fc2 = (parameters[f"linear_fc{n}.weight{i}"] for n in (1, 2))
        rows.append(torch.cat([fc1.flatten(), fc2.flatten()]))
    return torch.stack(rows)
