"""The keys of vLLM-Ascend's `additional_config`: what 0.13.0 reads, what our patches add, and what other releases read.

0.13.0 takes any other key and does not look at it, so a misspelt switch is off without a word.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

SWITCH = "enable_npugraph_ex"
STATIC_KERNEL = "enable_static_kernel"
ONE_TOKEN = "enable_one_token_graphs"
PAD_ATTENTION = "pad_graph_attention"
# Read by patches of this distribution, off by default: only an NPU can prove what they do.
OURS = frozenset((STATIC_KERNEL, ONE_TOKEN, PAD_ATTENTION))
# Read by vLLM-Ascend 0.13.0; a test compares them with its source.
UPSTREAM = frozenset(
    (
        "SLO_limits_for_dynamic_batch",
        "ascend_compilation_config",
        "dump_config_path",
        "dynamic_eplb",
        "enable_async_exponential",
        "enable_cpu_binding",
        "enable_kv_nz",
        SWITCH,
        "enable_shared_expert_dp",
        "eplb_config",
        "eplb_policy_type",
        "expert_map_path",
        "expert_map_record_path",
        "finegrained_tp_config",
        "gate_eplb",
        "init_redundancy_expert",
        "layer_sharding",
        "mix_placement",
        "multistream_overlap_gate",
        "multistream_overlap_shared_expert",
        "num_iterations_eplb_update",
        "num_wait_worker_iterations",
        "pa_shape_list",
        "recompute_scheduler_enable",
        "refresh",
        "weight_prefetch_config",
        "xlite_graph_config",
    )
)
COMPILATION = "ascend_compilation_config"
COMPILATION_KEYS = frozenset(("fuse_norm_quant", "fuse_qknorm_rope"))
# Keys of other releases, which 0.13.0 takes and does not look at.
OTHER_VERSIONS = {
    "npugraph_ex_config": "0.14",
    f"{COMPILATION}.{SWITCH}": "0.18",
    f"{COMPILATION}.{STATIC_KERNEL}": "0.18",
    "torchair_graph_config": "0.11 and older",
    "ascend_scheduler_config": "0.11 and older",
}


def wrong_keys(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(key, why) of each key that 0.13.0 with our patches does not read or misreads; a nested one with a dot."""
    known = UPSTREAM | OURS
    inner = config.get(COMPILATION)
    if COMPILATION in config and not isinstance(inner, Mapping):
        yield COMPILATION, f"{inner!r} is no mapping: give it keys, or leave it out"
    for key in sorted(OURS | {SWITCH}):
        if key in config and not isinstance(config[key], bool):
            yield key, f"{config[key]!r} is neither True nor False, and vLLM-Ascend would take any text as on: set one"
    names = [(key, known) for key in config]
    names += [(f"{COMPILATION}.{key}", COMPILATION_KEYS) for key in (inner if isinstance(inner, Mapping) else ())]
    for name, allowed in names:
        last = name.rpartition(".")[2]
        if last in allowed:
            continue
        if name in OTHER_VERSIONS:
            yield name, f"a key of vllm-ascend {OTHER_VERSIONS[name]}, which 0.13.0 silently ignores: take {SWITCH}"
        else:
            (near,) = difflib.get_close_matches(last, sorted(allowed), n=1, cutoff=0.0)
            yield name, f"vLLM-Ascend reads no such key; the nearest is {near}"


def check_keys(config: Mapping[str, Any] | None) -> None:
    """Raises ValueError naming the keys of `wrong_keys`. Called where vLLM-Ascend reads `additional_config`."""
    if wrong := [f"additional_config.{key}: {why}" for key, why in wrong_keys(config or {})]:
        raise ValueError("; ".join(wrong))
