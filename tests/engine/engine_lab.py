"""Engines for the tests: the patched vLLM in this process, on a CPU."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vllm import LLM, SamplingParams
from vllm.sampling_params import RequestOutputKind

K = 5
# The adaptive gate follows the clock; a test must not.
SAM = {"method": "sam", "num_speculative_tokens": K, "sam_config": {"gate": False}}


def engine(model: Path, speculation: dict[str, Any] | None, **settings: Any) -> LLM:
    chosen = {
        "max_model_len": 512,
        "max_num_seqs": 32,
        "num_gpu_blocks_override": 320,  # of 128 tokens; else each engine takes a GiB
        "dtype": "float32",
        "enforce_eager": True,
        "seed": 0,
        **settings,
    }
    llm = LLM(
        str(model), speculative_config=dict(speculation) if speculation else None, disable_log_stats=False, **chosen
    )
    # A request waits for its grammar; compiled by a thread, it may find the other requests gone.
    llm.llm_engine.engine_core.engine_core.structured_output_manager._use_async_grammar_compilation = False
    return llm


def sam(**config: Any) -> dict[str, Any]:
    return {**SAM, "sam_config": {"gate": False, **config}}


def greedy(tokens: int, **more: Any) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, **more)


def prompts_of(n: int, tokens: int = 20, first: int = 0) -> list[dict[str, list[int]]]:
    """n prompts of `tokens` byte tokens that differ from each other."""
    return [
        {"prompt_token_ids": [(7 * i + 3 * j * j + i * j) % 250 for j in range(tokens)]}
        for i in range(first, first + n)
    ]


def generate(llm: LLM, prompts: Sequence, params: SamplingParams | Sequence[SamplingParams]) -> list[list[int]]:
    """The tokens of each prompt's only output."""
    outputs = llm.generate(list(prompts), params, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


def model_runner(llm: LLM):
    return llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner


def drafted(llm: LLM) -> dict[str, float]:
    """The proposer's statistics, which must have drafted and had drafts accepted."""
    stats = model_runner(llm).drafter.stats()
    assert stats["accepted_tokens"] > 0, stats
    return stats


def engine_counts(llm: LLM) -> dict[str, int]:
    """vLLM's own counters of drafts."""
    return {
        metric.name.removeprefix("vllm:spec_decode_num_"): metric.value
        for metric in llm.get_metrics()
        if metric.name in ("vllm:spec_decode_num_draft_tokens", "vllm:spec_decode_num_accepted_tokens")
    }


def cumulative(params: SamplingParams) -> SamplingParams:
    """For engines that are stepped by hand."""
    params.output_kind = RequestOutputKind.CUMULATIVE
    return params
