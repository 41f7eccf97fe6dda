"""A batch's limit on response tokens, from what its rows are expected to need. Off unless the environment asks for it.

    cap = min(response_length, max(VLLM_ROLLOUT_EARLY_STOP_MIN_TOKENS, VLLM_ROLLOUT_EARLY_STOP_FACTOR * expected))

expected is the longest response that the sampler expects of the batch. A batch with a row never seen is not capped.
"""

import os
from collections.abc import Mapping

from qwen3_rl.errors import UserError
from qwen3_rl.length_aware import MAX_TOKENS

PREFIX = "VLLM_ROLLOUT_EARLY_STOP_"


def limit_responses(sampler, batch, gen_batch, response_length: int) -> dict[str, int]:
    """Set the cap of ``gen_batch``, which is about to be generated, and of ``batch``; returns the metric of it.

    Nothing is set and {} returned while the cap is off. Raises UserError for a setting that makes no sense.
    """
    settings = read_cap(os.environ)
    if settings is None:
        return {}
    factor, min_tokens = settings
    if not hasattr(sampler, "expected_longest"):
        raise UserError(
            f"{PREFIX}ENABLE=1, but {type(sampler).__name__} knows no response lengths",
            f"set data.sampler.class_name=LengthAwareEpochSampler, or unset {PREFIX}ENABLE",
        )
    expected = sampler.expected_longest(batch)
    cap = response_length if expected is None else min(response_length, int(max(min_tokens, factor * expected)))
    batch.meta_info[MAX_TOKENS] = gen_batch.meta_info[MAX_TOKENS] = cap
    return {"rollout/response_max_tokens_cap": cap}


def read_cap(environment: Mapping[str, str]) -> tuple[float, int] | None:
    """(factor, min_tokens), or None while the cap is off. Raises UserError naming variable and value."""
    enable = environment.get(f"{PREFIX}ENABLE", "0")
    if enable not in ("0", "1"):
        raise UserError(f"{PREFIX}ENABLE={enable}", "set it to 1 or 0")
    if enable == "0":
        return None
    factor = _positive(environment, "FACTOR", "2.0", float)
    return factor, _positive(environment, "MIN_TOKENS", "10000", int)


def _positive(environment: Mapping[str, str], name: str, default: str, kind: type):
    text = environment.get(PREFIX + name, default)
    try:
        value = kind(text)
    except ValueError:
        value = 0
    if not 0 < value < float("inf"):
        raise UserError(
            f"{PREFIX}{name}={text}", f"set it to {'a number' if kind is float else 'a whole number'} above 0"
        )
    return value
