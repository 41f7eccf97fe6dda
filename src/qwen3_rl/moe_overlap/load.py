"""After megatron's distributed checkpoint was read: put it into the model. Called by a patch on veRL's loader.

`dist_checkpointing.load` writes into the tensors of the sharded state dict. Where the model made that entry with a
factory (GroupedMLP's weight1 and weight2, among others) these are copies, and what was read is in the returned
dictionary alone.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from qwen3_rl.errors import UserError


def take_loaded(model: torch.nn.Module, loaded: Mapping[str, Any], prefix: str = "", absent: Iterable[str] = ()):
    """Copy every loaded tensor into ``model``; ``loaded`` is what ``dist_checkpointing.load`` returned.

    ``prefix`` is that of the sharded state dict's keys; parameters whose name contains one of ``absent`` may be
    missing. Raises UserError where another parameter or buffer got nothing.
    """
    tensors = {key.removeprefix(prefix): value for key, value in loaded.items() if isinstance(value, torch.Tensor)}
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    missing = [key for key in missing if "_extra_state" not in key and not any(part in key for part in absent)]
    if missing or unexpected:
        raise UserError(
            f"the distributed checkpoint and the model differ: {len(missing)} of the model's tensors got no values "
            f"(such as {missing[:3]}), {len(unexpected)} tensors have no place in it (such as {unexpected[:3]})",
            "convert the weights again (qwen3-rl convert), or see dist_checkpointing_prefix",
        )
