"""Where the numbers of a Hugging Face expert lie in Megatron's grouped weights. Arithmetic alone: torch, no framework.

Sizes: H hidden, F intermediate of one expert, E experts in all, e = E / ep of them on an expert-parallel rank,
f = F / etp of their intermediate size on an expert-tensor-parallel rank. Any dtype; nothing is rounded.

Hugging Face keeps for each expert gate_proj [F, H], up_proj [F, H], down_proj [H, F].
Stock Megatron (SequentialMLP, TEGroupedMLP) keeps for each expert
    fc1 [2f, H]     this rank's rows of gate, then this rank's rows of up
    fc2 [H, f]      this rank's columns of down
Grouped Megatron (GroupedMLP, which the overlap always builds) keeps for all experts of a rank
    weight1 [H, e * 2f]     flat; the memory is [e, H, 2f], an expert's slice is the transpose of its fc1
    weight2 [e * f, H]      flat; the memory is [e, f, H], an expert's slice is the transpose of its fc2
weight1's columns are not the experts: only ``view(e, H, 2f)`` separates them (megatron-core 0.12.1,
transformer/moe/experts.py, GroupedMLP.forward).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Expert:
    """One expert as Hugging Face keeps it: gate [F, H], up [F, H], down [H, F]."""

    gate: Tensor
    up: Tensor
    down: Tensor


def share(total: int, parts: int, rank: int) -> range:
    """Which of ``total`` rows or experts a rank of ``parts`` holds. Raises ValueError where they cannot be divided."""
    if total % parts:
        raise ValueError(f"{total} cannot be divided over {parts} ranks")
    size = total // parts
    return range(rank * size, (rank + 1) * size)


def stock_of(expert: Expert, etp: int = 1, rank: int = 0) -> tuple[Tensor, Tensor]:
    """fc1 [2f, H] and fc2 [H, f] of one expert on expert-tensor-parallel rank ``rank`` of ``etp``."""
    mine = share(expert.gate.shape[0], etp, rank)
    rows = slice(mine.start, mine.stop)
    return torch.cat([expert.gate[rows], expert.up[rows]]), expert.down[:, rows]


def expert_of(parts: Sequence[tuple[Tensor, Tensor]]) -> Expert:
    """The whole expert from (fc1, fc2) of every expert-tensor-parallel rank, in rank order."""
    halves = [fc1.chunk(2) for fc1, _ in parts]
    gate, up = (torch.cat([half[i] for half in halves]) for i in (0, 1))
    return Expert(gate, up, torch.cat([fc2 for _, fc2 in parts], dim=1))


def grouped_of(stock: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """weight1 [H, e * 2f] and weight2 [e * f, H] from (fc1, fc2) of every expert of a rank, in order."""
    weight1 = torch.stack([fc1.t() for fc1, _ in stock])
    weight2 = torch.stack([fc2.t() for _, fc2 in stock])
    return weight1.view(weight1.shape[1], -1), weight2.view(-1, weight2.shape[2])


def fc1_of(weight1: Tensor, experts: int, index: int) -> Tensor:
    """fc1 [2f, H] of local expert ``index`` out of weight1 [H, experts * 2f]: a view."""
    return weight1.view(experts, weight1.shape[0], -1)[index].t()


def fc2_of(weight2: Tensor, experts: int, index: int) -> Tensor:
    """fc2 [H, f] of local expert ``index`` out of weight2 [experts * f, H]: a view."""
    return weight2.view(experts, -1, weight2.shape[1])[index].t()
