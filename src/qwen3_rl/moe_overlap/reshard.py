"""From the training layout of expert weights to the rollout's, each rank receiving only what it lacks.

The plan, who sends which expert to whom, is a pure function of the two layouts; the executor packs, exchanges by
all-to-all-v and unpacks, one layer of every pipeline stage at a time.

Words. A shard is a rank's part of one expert under expert tensor parallelism: fc1 [2, F/ETP, H] (gate, up) and fc2
[H, F/ETP], H the hidden size and F the experts' intermediate size; a row is one shard, flat: 3*H*F/ETP elements.
Orientation is Hugging Face's, [out, in].
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch

from qwen3_rl.errors import UserError


class Place(NamedTuple):
    """A rank's coordinates in Megatron-Core's grid of expert weights."""

    shard: int  # expert tensor parallel rank
    ep: int
    replica: int  # expert data parallel rank
    stage: int  # pipeline rank


@dataclass(frozen=True)
class TrainLayout:
    """Expert weights in training: ranks in Megatron-Core's order tp-ep-dp-pp, the first running fastest."""

    world: int
    stages: tuple[tuple[int, ...], ...]  # each pipeline stage's layers, numbered over the model
    ep: int = 1
    etp: int = 1

    def __post_init__(self):
        if self.world % (self.etp * self.ep * len(self.stages)):
            raise UserError(
                f"{self.world} ranks are no multiple of expert_tensor_parallel_size {self.etp} x "
                f"expert_model_parallel_size {self.ep} x pipeline_model_parallel_size {len(self.stages)}",
                "set the three so that their product divides trainer.nnodes x trainer.n_gpus_per_node",
            )

    @property
    def replicas(self) -> int:
        return self.world // (self.etp * self.ep * len(self.stages))

    def place(self, rank: int) -> Place:
        rank, shard = divmod(rank, self.etp)
        rank, ep = divmod(rank, self.ep)
        stage, replica = divmod(rank, self.replicas)
        return Place(shard, ep, replica, stage)

    def rank(self, place: Place) -> int:
        return place.shard + self.etp * (place.ep + self.ep * (place.replica + self.replicas * place.stage))


def spread(experts: int, ep: int, ep_rank: int) -> range:
    """The experts of one rank: even, in order, the first ranks one more (vLLM's linear placement, and Megatron's)."""
    size, left = divmod(experts, ep)
    start = ep_rank * size + min(ep_rank, left)
    return range(start, start + size + (ep_rank < left))


class Piece(NamedTuple):
    """One shard that goes to another rank, once for every layer of the sender's stage."""

    sender: int
    receiver: int
    expert: int
    shard: int


@dataclass(frozen=True)
class Plan:
    """Who sends what: ``pieces`` in the order in which they lie in the buffers."""

    train: TrainLayout
    rollout_ep: int
    experts: int
    pieces: tuple[Piece, ...]

    def held(self, rank: int) -> range:
        """Experts of which ``rank`` holds a shard in training, in its stage's layers."""
        return spread(self.experts, self.train.ep, self.train.place(rank).ep)

    def needed(self, rank: int) -> range:
        """Experts that ``rank`` holds in the rollout, in all layers."""
        return spread(self.experts, self.rollout_ep, rank % self.rollout_ep)

    @property
    def rounds(self) -> int:
        return max(map(len, self.train.stages))

    @cached_property
    def sent(self) -> dict[int, list[Piece]]:
        return grouped(self.pieces, lambda piece: piece.sender)

    @cached_property
    def received(self) -> dict[int, list[Piece]]:
        return grouped(self.pieces, lambda piece: piece.receiver)

    def layer(self, rank: int, number: int) -> int | None:
        """The layer that ``rank`` sends in round ``number``; None if its stage has no more."""
        layers = self.train.stages[self.train.place(rank).stage]
        return layers[number] if number < len(layers) else None


def grouped(pieces: tuple[Piece, ...], key: Callable[[Piece], int]) -> dict[int, list[Piece]]:
    groups = defaultdict(list)
    for piece in pieces:
        groups[key(piece)].append(piece)
    return groups


def plan_reshard(train: TrainLayout, rollout_ep: int, experts: int) -> Plan:
    """The smallest plan: what a receiver holds isn't sent, the rest once; replicas share the sending evenly.

    The rollout's ranks are training's, rank r being expert parallel rank r modulo ``rollout_ep``: veRL hands weights
    from a trainer's process to the vLLM worker on the same device.
    """
    if experts % train.ep:
        raise UserError(
            f"{experts} experts cannot be shared evenly by expert_model_parallel_size {train.ep}",
            f"set actor_rollout_ref.actor.megatron.expert_model_parallel_size to a divisor of {experts}",
        )
    if train.world % rollout_ep:
        raise UserError(
            f"the rollout's expert_parallel_size {rollout_ep} does not divide the {train.world} ranks of training",
            "choose rollout.tensor_model_parallel_size x rollout.data_parallel_size so that it does",
        )
    held_experts = experts // train.ep
    pieces = []
    for stage in range(len(train.stages)):
        load = [0] * train.world
        for receiver in range(train.world):
            own = train.place(receiver)
            for expert in spread(experts, rollout_ep, receiver % rollout_ep):
                for shard in range(train.etp):
                    ep = expert // held_experts
                    if (stage, ep, shard) == (own.stage, own.ep, own.shard):
                        continue
                    holders = [train.rank(Place(shard, ep, replica, stage)) for replica in range(train.replicas)]
                    # Of the least loaded the nearest, which is more often on the receiver's node.
                    sender = min(holders, key=lambda rank: (load[rank], abs(rank - receiver)))
                    load[sender] += 1
                    pieces.append(Piece(sender, receiver, expert, shard))
    return Plan(train, rollout_ep, experts, tuple(sorted(pieces)))


@dataclass(frozen=True)
class Sizes:
    """What turns pieces into bytes."""

    hidden: int
    ffn: int  # an expert's intermediate size
    itemsize: int  # bytes of an element

    @property
    def expert(self) -> int:
        """Bytes of one expert of one layer."""
        return 3 * self.hidden * self.ffn * self.itemsize


@dataclass(frozen=True)
class Traffic:
    """Bytes over all layers, a rank."""

    sent: list[int]
    received: list[int]
    lacking: list[int]  # needed in the rollout and not held in training: no way can receive less
    gathered: list[int]  # received where every rank collects all experts: all that it does not hold
    buffers: list[int]  # of the fullest round, to send and to receive


def traffic(plan: Plan, sizes: Sizes) -> Traffic:
    train = plan.train
    shard = sizes.expert // train.etp
    stages = [len(layers) for layers in train.stages]
    places = [train.place(rank) for rank in range(train.world)]
    result = Traffic([0] * train.world, [0] * train.world, [], [], [0] * train.world)
    for piece in plan.pieces:
        size = shard * stages[places[piece.sender].stage]
        result.sent[piece.sender] += size
        result.received[piece.receiver] += size
        result.buffers[piece.sender] += shard  # in the first round every stage has a layer
        result.buffers[piece.receiver] += shard
    layers = sum(stages)
    for rank, place in enumerate(places):
        held, needed = plan.held(rank), plan.needed(rank)
        kept = max(0, min(held.stop, needed.stop) - max(held.start, needed.start))
        own = shard * stages[place.stage]
        result.lacking.append(len(needed) * layers * sizes.expert - kept * own)
        result.gathered.append(plan.experts * layers * sizes.expert - len(held) * own)
    return result


@dataclass(frozen=True)
class LayerExperts:
    """The rollout's experts of one layer: gate and up [n, F, H], down [n, H, F], for the n experts of ``experts``."""

    layer: int
    experts: range
    gate: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor


def splits(plan: Plan, rank: int, number: int) -> tuple[list[int], list[int]]:
    """Pieces that ``rank`` sends to each rank, and receives from each, in round ``number``."""
    sends, receives = [0] * plan.train.world, [0] * plan.train.world
    if plan.layer(rank, number) is not None:
        for piece in plan.sent.get(rank, ()):
            sends[piece.receiver] += 1
    for piece in plan.received.get(rank, ()):
        if plan.layer(piece.sender, number) is not None:
            receives[piece.sender] += 1
    return sends, receives


def pack(plan: Plan, rank: int, own: torch.Tensor) -> torch.Tensor:
    """What ``rank`` sends of one layer, [pieces, row], by receiver; ``own`` [experts held, row]: what it holds."""
    first = plan.held(rank).start
    return own[
        torch.tensor([piece.expert - first for piece in plan.sent.get(rank, ())], dtype=torch.long).to(own.device)
    ]


def unpack(
    plan: Plan, rank: int, number: int, own: torch.Tensor | None, received: torch.Tensor, hidden: int
) -> Iterator[LayerExperts]:
    """The rollout's experts of the layers of round ``number``; ``received`` [pieces, row], by sender."""
    train, held, needed = plan.train, plan.held(rank), plan.needed(rank)
    here = train.place(rank)
    arrived = (piece for piece in plan.received.get(rank, ()) if plan.layer(piece.sender, number) is not None)
    source = {(train.place(p.sender).stage, p.expert, p.shard): row for p, row in zip(arrived, received, strict=True)}
    if own is not None:
        source |= {(here.stage, expert, here.shard): row for expert, row in zip(held, own, strict=True)}
    for stage, layers in enumerate(train.stages):
        if number < len(layers):
            rows = received.new_empty(len(needed), train.etp, received.shape[1])
            for i, expert in enumerate(needed):
                for shard in range(train.etp):
                    rows[i, shard] = source[stage, expert, shard]
            yield merge_shards(rows, layers[number], needed, hidden)


def merge_shards(rows: torch.Tensor, layer: int, experts: range, hidden: int) -> LayerExperts:
    """``rows`` [n, ETP, row] as whole experts: gate and up lie beside each other in every shard."""
    n, etp, width = rows.shape
    part = width // (3 * hidden)
    fc1 = rows[..., : 2 * part * hidden].view(n, etp, 2, part, hidden)
    fc2 = rows[..., 2 * part * hidden :].view(n, etp, hidden, part)
    return LayerExperts(
        layer,
        experts,
        gate=fc1[:, :, 0].reshape(n, etp * part, hidden),
        up=fc1[:, :, 1].reshape(n, etp * part, hidden),
        down=fc2.transpose(1, 2).reshape(n, hidden, etp * part),
    )


def reshard(
    plan: Plan, local: Callable[[int], torch.Tensor], hidden: int, like: torch.Tensor, group=None
) -> Iterator[LayerExperts]:
    """Every layer's experts in the rollout's layout. All ranks of ``group`` must run it to its end.

    ``local`` gives what this rank holds of one of its layers, [experts held, row]; ``like`` is an empty tensor [0, row]
    of the weights' dtype and device. Memory: the buffers of one round (`Traffic.buffers`) and one layer's experts.
    """
    rank = torch.distributed.get_rank(group)
    for number in range(plan.rounds):
        sends, receives = splits(plan, rank, number)
        layer = plan.layer(rank, number)
        own = None if layer is None else local(layer)
        send = like if own is None else pack(plan, rank, own)
        received = like.new_empty(sum(receives), like.shape[1])
        torch.distributed.all_to_all_single(received, send, receives, sends, group=group)
        del send
        yield from unpack(plan, rank, number, own, received, hidden)
