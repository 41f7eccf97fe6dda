"""From training to rollout: grouped expert weights under the names and shapes that veRL's weight sync knows.

veRL's `per_tensor_generator` gathers, joins and names the stock layout (linear_fc1.weight0, ...) one tensor at a time.
Called by a patch there, these two turn weight1 and weight2 into that layout; at any time one expert's copy is alive.
"""

from collections.abc import Iterator

from torch import Tensor

from qwen3_rl.moe_overlap.layout import fc1_of, fc2_of

GROUPED = {".mlp.experts.weight1": ("linear_fc1", fc1_of), ".mlp.experts.weight2": ("linear_fc2", fc2_of)}


def stock_names(name: str, local_experts: int) -> list[str]:
    """The stock names of parameter ``name``: one for each expert of this rank if it is grouped, else itself."""
    for suffix, (linear, _) in GROUPED.items():
        if name.endswith(suffix):
            experts = f"{name.removesuffix(suffix)}.mlp.experts"
            return [f"{experts}.{linear}.weight{index}" for index in range(local_experts)]
    return [name]


def stock_parameters(name: str, param: Tensor, local_experts: int) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) in the order of `stock_names`; a grouped one as contiguous fc1 [2f, H] or fc2 [H, f]."""
    names = stock_names(name, local_experts)
    for suffix, (_, expert) in GROUPED.items():
        if name.endswith(suffix):
            for index, stock in enumerate(names):
                yield stock, expert(param.detach(), local_experts, index).contiguous()
            return
    yield name, param
