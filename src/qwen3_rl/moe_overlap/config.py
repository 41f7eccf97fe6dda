"""What must agree for the overlap to run, and for its weights to arrive. One definition: the dry run and the worker."""

from collections.abc import Iterator, Mapping
from typing import Any

from qwen3_rl.errors import UserError

SWITCH = "USE_ALLTOALL_OVERLAP"


def contradictions(megatron: Mapping[str, Any], environment: Mapping[str, str]) -> Iterator[str]:
    """What excludes what in ``actor_rollout_ref.actor.megatron`` and in the switch of the environment.

    The rules on dispatchers are those of MindSpeed's moe_alltoall_overlap feature, which veRL does not have checked.
    """
    transformer = megatron.get("override_transformer_config") or {}
    overlap = bool(transformer.get("moe_alltoall_overlap_comm", False))
    switch = environment.get(SWITCH) or None
    if switch not in (None, "0", "1"):
        yield f"{SWITCH} = {switch!r} is neither 0 nor 1"
    elif switch is not None and overlap != (switch == "1"):
        yield f"{SWITCH} = {switch}, but override_transformer_config.moe_alltoall_overlap_comm = {overlap}"
    level = transformer.get("moe_zero_memory", "disable")
    if level not in ("disable", "level0", "level1"):
        yield f"moe_zero_memory = {level!r} is none of disable, level0, level1"
    elif level != "disable" and not overlap:
        yield "moe_zero_memory needs moe_alltoall_overlap_comm=True"
    if not overlap:
        return
    dispatcher = transformer.get("moe_token_dispatcher_type", "alltoall")
    if dispatcher not in ("alltoall", "alltoall_seq"):
        yield f"moe_alltoall_overlap_comm needs moe_token_dispatcher_type alltoall or alltoall_seq, not {dispatcher}"
    if not transformer.get("moe_grouped_gemm", False):
        yield "moe_alltoall_overlap_comm needs moe_grouped_gemm=True"
    if dispatcher == "alltoall_seq" and not transformer.get("moe_permutation_async_comm", False):
        yield "moe_alltoall_overlap_comm with the dispatcher alltoall_seq needs moe_permutation_async_comm=True"
    if dispatcher == "alltoall_seq" and (megatron.get("tensor_model_parallel_size") or 1) > 1:
        yield (
            "moe_alltoall_overlap_comm with the dispatcher alltoall_seq and tensor parallelism needs moe_tp_extend_ep, "
            "whose experts the weight sync does not know: take the dispatcher alltoall"
        )
    if transformer.get("moe_tp_extend_ep", False):
        yield "moe_tp_extend_ep puts experts where the weight sync does not look for them: leave it out"
    if megatron.get("use_mbridge", False):
        yield "use_mbridge=True knows no grouped expert weights, which moe_alltoall_overlap_comm makes: set it to False"


def check(megatron: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Raises UserError on any contradiction. Called by a patch where veRL's worker hands its settings to MindSpeed."""
    found = list(contradictions(megatron, environment))
    if found:
        raise UserError("; ".join(found), f"set {SWITCH} and let the script pass what it needs, or mend the overrides")
