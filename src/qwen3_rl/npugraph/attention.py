"""The lengths that a graph's attention is given on a replay."""

from typing import Any

from qwen3_rl.npugraph.keys import PAD_ATTENTION


def padded_lengths(
    query_ends: list[int], kv_lengths: list[int], tokens: int, vllm_config: Any
) -> tuple[list[int], list[int]]:
    """(query_ends, kv_lengths) with empty requests added until the last query ends at ``tokens``; as they are if
    `pad_graph_attention` is off.

    query_ends: running sums of the requests' new tokens. kv_lengths: tokens that each request attends to. An added
    request has at most k + 1 tokens, as in the capture, and attends to none.
    """
    if (vllm_config.additional_config or {}).get(PAD_ATTENTION) is not True:
        return query_ends, kv_lengths
    speculative = vllm_config.speculative_config
    width = 1 + (speculative.num_speculative_tokens if speculative else 0)
    last = query_ends[-1] if query_ends else 0
    added = [min(end, tokens) for end in range(last + width, tokens + width, width)]
    ends = query_ends + added
    return ends, kv_lengths + [0] * (len(ends) - len(kv_lengths))
