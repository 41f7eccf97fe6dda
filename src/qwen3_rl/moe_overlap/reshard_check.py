"""ALL_TO_ALL_RESHARD=1 in the vLLM worker: all of its experts must come, or it would go on with old ones unnoticed."""

import os
from collections.abc import Iterable

from qwen3_rl.errors import UserError
from qwen3_rl.moe_overlap.reshard_config import SWITCH


class ArrivedExperts:
    """Notes the names of one synchronisation's weights."""

    def __init__(self):
        self.names = set()

    def note(self, weights: list[tuple]) -> list[tuple]:
        """``weights``, (Hugging Face name, tensor) each, as they are."""
        self.names.update(name for name, _ in weights)
        return weights

    def check(self, model) -> None:
        """Raises UserError if a weight of an expert that a layer of ``model`` holds did not come."""
        if os.environ.get(SWITCH) != "1":
            return
        missing = sorted(wanted(model) - self.names)
        if missing:
            raise UserError(
                f"{SWITCH}=1 did not bring all experts that this vLLM worker holds: {missing[0]} and "
                f"{len(missing) - 1} more are missing",
                f"set {SWITCH}=0",
            )


def wanted(model) -> set[str]:
    """The names of all expert weights that ``model`` holds on this rank, by its layers' own placement."""
    from vllm.model_executor.layers.fused_moe.layer import FusedMoE

    return {
        f"{name}.{expert}.{part}_proj.weight"
        for name, layer in model.named_modules()
        if isinstance(layer, FusedMoE)
        for expert in held(layer)
        for part in ("gate", "up", "down")
    }


def held(layer) -> Iterable[int]:
    """Global numbers of a fused layer's experts; its map gives -1 for other ranks', and is None on one rank."""
    if layer._expert_map is None:
        return range(layer.global_num_experts)
    return [expert for expert, place in enumerate(layer._expert_map.tolist()) if place >= 0]
