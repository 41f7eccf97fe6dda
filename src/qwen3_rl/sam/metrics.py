"""Acceptance of SAM's drafts as metrics of a training step, from the counters of the rollout's engines."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

PREFIX = "rollout/spec_decode/"
DRAFT_TOKENS = f"{PREFIX}draft_tokens"


class StepMetrics:
    """The difference that one batch of rollouts made to the engines' counters (`SamProposer.stats`)."""

    def __init__(self) -> None:
        self._before: Counter[str] = Counter()

    @classmethod
    def of(cls, rollout_config: Mapping[str, Any]) -> "StepMetrics | None":
        """None unless veRL's rollout configuration asks vLLM for SAM drafts."""
        vllm = (rollout_config.get("engine_kwargs") or {}).get("vllm") or {}
        speculative = vllm.get("speculative_config") or {}
        if isinstance(speculative, str):
            speculative = json.loads(speculative)
        return cls() if speculative.get("method") == "sam" else None

    def step(self, counters: Iterable[Mapping[str, float]]) -> dict[str, float]:
        """The metrics since the last call. counters: one reply a server, each counted since the engine's start; with
        data parallelism within a server vLLM 0.13 passes on the first rank's alone.

        acceptance_rate: accepted of the verified draft tokens. mean_accepted: accepted tokens a request and decoding
        step, so one more is what a forward pass yields. draft_tokens: verified. group_hits: share of the drafts whose
        group held other requests' text. gate: the highest chance of acceptance that was refused, mean over the
        engines' steps; 1 for steps that asked for no drafts.
        """
        now: Counter[str] = Counter()
        for reply in counters:
            now.update(reply)
        made = {key: now[key] - self._before[key] for key in now}
        self._before = now

        def ratio(part: str, whole: str) -> float:
            return made.get(part, 0) / max(made.get(whole, 0), 1)

        return {
            f"{PREFIX}acceptance_rate": ratio("accepted_tokens", "draft_tokens"),
            f"{PREFIX}mean_accepted": ratio("accepted_tokens", "request_steps"),
            DRAFT_TOKENS: made.get("draft_tokens", 0),
            f"{PREFIX}group_hits": ratio("group_hits", "drafts"),
            f"{PREFIX}gate": ratio("gate", "steps"),
        }


def over_batches(batches: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of the metrics of a step's generation batches one: the sum of draft_tokens, the mean of what is a share."""
    return {
        name: (sum if name == DRAFT_TOKENS else fmean)([metrics[name] for metrics in batches]) for name in batches[0]
    }
