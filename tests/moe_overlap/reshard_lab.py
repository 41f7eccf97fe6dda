"""Expert weights of a model, cut as Megatron-Core cuts them, and the all-gather that the reshard is compared with."""

from itertools import product
from typing import NamedTuple

import torch

from qwen3_rl.moe_overlap.reshard import LayerExperts, Place, Plan, TrainLayout, pack, splits, unpack

HIDDEN = 3


class Model(NamedTuple):
    """[layers, experts, F, H], [layers, experts, F, H] and [layers, experts, H, F]."""

    gate: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor


def divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def pairs(world: int):
    """Every training layout of ``world`` ranks, with every expert parallel size that a rollout on them can have."""
    for pp, ep, etp in product(divisors(world), repeat=3):
        if world % (pp * ep * etp) == 0:
            for rollout_ep in divisors(world):
                yield uneven_layout(world, pp, ep, etp), rollout_ep


def uneven_layout(world: int, pp: int, ep: int, etp: int) -> TrainLayout:
    """The first stage has two layers, not next to each other, as under virtual pipelining; the others one."""
    return TrainLayout(world, ((0, pp), *((layer,) for layer in range(1, pp))), ep, etp)


def random_model(layers: int, experts: int, ffn: int) -> Model:
    generator = torch.Generator().manual_seed(layers * 1000 + experts)
    shapes = ((ffn, HIDDEN), (ffn, HIDDEN), (HIDDEN, ffn))
    return Model(*(torch.randn(layers, experts, *shape, generator=generator).bfloat16() for shape in shapes))


def model_for(train: TrainLayout, experts: int) -> Model:
    return random_model(sum(map(len, train.stages)), experts, 2 * train.etp)


def shard_of(model: Model, train: TrainLayout, rank: int, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What ``rank`` holds of a layer: fc1 [experts held, 2F/ETP, H] = [gate shard | up shard], fc2 [.., H, F/ETP]."""
    place = train.place(rank)
    cut = slice(place.ep * model.gate.shape[1] // train.ep, (place.ep + 1) * model.gate.shape[1] // train.ep)
    gate, up, down = (
        weight[layer, cut].chunk(train.etp, dim)[place.shard] for weight, dim in zip(model, (1, 1, 2), strict=True)
    )
    return torch.cat([gate, up], 1), down


def rows_of(model: Model, train: TrainLayout, rank: int, layer: int) -> torch.Tensor:
    return torch.cat([part.flatten(1) for part in shard_of(model, train, rank, layer)], 1)


def all_gather_way(model: Model, train: TrainLayout) -> Model:
    """What every rank ends with when pipeline stages broadcast and expert and tensor groups gather, as veRL does."""
    layers = []
    for layer in range(model.gate.shape[0]):
        (stage,) = (s for s, numbers in enumerate(train.stages) if layer in numbers)
        experts = []
        for ep in range(train.ep):
            group = [train.rank(Place(shard, ep, 0, stage)) for shard in range(train.etp)]
            fc1, fc2 = zip(*(shard_of(model, train, rank, layer) for rank in group), strict=True)
            gates, ups = zip(*(part.chunk(2, 1) for part in fc1), strict=True)
            experts.append((torch.cat(gates, 1), torch.cat(ups, 1), torch.cat(fc2, 2)))
        layers.append([torch.cat(parts) for parts in zip(*experts, strict=True)])
    return Model(*(torch.stack(parts) for parts in zip(*layers, strict=True)))


def same_as_gathered(got: LayerExperts, gathered: Model) -> bool:
    cut = slice(got.experts.start, got.experts.stop)
    return all(
        torch.equal(mine, whole[got.layer, cut])
        for mine, whole in zip((got.gate, got.up, got.down), gathered, strict=True)
    )


def simulate(plan: Plan, model: Model) -> tuple[dict[int, list[LayerExperts]], list[int]]:
    """All ranks' packing and unpacking, the executor's own, in one process: their layers, and the bytes received."""
    world = plan.train.world
    results, received_bytes = {rank: [] for rank in range(world)}, [0] * world
    for number in range(plan.rounds):
        own, outbox = {}, []
        for rank in range(world):
            layer = plan.layer(rank, number)
            own[rank] = None if layer is None else rows_of(model, plan.train, rank, layer)
            rows = model.gate.new_empty(0, 3 * HIDDEN * 2) if layer is None else pack(plan, rank, own[rank])
            outbox.append(rows.split(splits(plan, rank, number)[0]))
        for rank in range(world):
            parts = [sent[rank] for sent in outbox]
            assert [len(part) for part in parts] == splits(plan, rank, number)[1]
            received = torch.cat(parts)
            received_bytes[rank] += received.nbytes
            results[rank] += unpack(plan, rank, number, own[rank], received, HIDDEN)
    return results, received_bytes
