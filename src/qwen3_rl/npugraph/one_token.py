"""Graphs for steps in which every request has one token, where graphs with drafts have k + 1 tokens a request.

vLLM-Ascend's model runner and vLLM's dispatcher both take "uniform" to mean `uniform_decode_query_len` tokens a
request. Here that length is chosen for each step: 1, or k + 1. A graph is named by its tokens and its requests, so the
two kinds never meet; both are captured for the same token counts, as far as there can be as many requests.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from qwen3_rl.npugraph.keys import ONE_TOKEN
from qwen3_rl.npugraph.sizes import one_token_sizes


def enabled(vllm_config: Any) -> bool:
    """Whether `enable_one_token_graphs` is on and means anything: with drafts, and graphs for uniform batches.

    Not with data parallelism: the ranks of a step would replay graphs of unequal shape.
    """
    return (
        (vllm_config.additional_config or {}).get(ONE_TOKEN) is True
        and vllm_config.speculative_config is not None
        and vllm_config.parallel_config.data_parallel_size == 1
        and vllm_config.compilation_config.cudagraph_mode.name == "FULL_DECODE_ONLY"
    )


def set_query_len(runner: Any, tokens: Sequence[int]) -> None:
    """Choose what uniform means in the step that schedules ``tokens``, the new tokens of each request."""
    if enabled(runner.vllm_config):
        _use(runner, 1 if max(tokens) == 1 else runner.decode_token_per_req)


def add_one_token_keys(dispatcher: Any) -> list[int]:
    """Tell the dispatcher of the graphs with one token a request; their token counts, [] where there are none."""
    config = dispatcher.vllm_config
    if not enabled(config):
        return []
    sizes = one_token_sizes(config.compilation_config.cudagraph_capture_sizes, config.scheduler_config.max_num_seqs)
    length = dispatcher.uniform_decode_query_len
    graphs = type(config.compilation_config.cudagraph_mode).FULL
    dispatcher.uniform_decode_query_len = 1
    for size in sizes:
        batch = dispatcher._create_padded_batch_descriptor(size, True, bool(config.lora_config))
        dispatcher.add_cudagraph_key(graphs, batch)
    dispatcher.uniform_decode_query_len = length
    return sizes


@contextmanager
def one_token_cases(runner: Any, cases: Sequence[tuple[int, bool]]) -> Iterator[list[tuple[int, bool]]]:
    """Of the captures (tokens, LoRA) those to be made with one token a request as well, which is what uniform means
    inside."""
    if not enabled(runner.vllm_config):
        yield []
        return
    sizes = one_token_sizes([size for size, _ in cases], runner.scheduler_config.max_num_seqs)
    _use(runner, 1)
    try:
        yield [case for case in cases if case[0] in sizes]
    finally:
        _use(runner, runner.decode_token_per_req)


def _use(runner: Any, query_len: int) -> None:
    runner.uniform_decode_query_len = runner.cudagraph_dispatcher.uniform_decode_query_len = query_len
