"""`SamProposer`: SAM drafts for an engine's batch. Knows vLLM's configuration and batch by their attributes only."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from time import perf_counter
from typing import Any

import numpy as np

from qwen3_rl.sam.config import SamConfig
from qwen3_rl.sam.drafter import SamDrafter
from qwen3_rl.sam.gate import Gate

BATCH_LIMIT = "VLLM_SPECULATIVE_BATCH_SIZE_THRE"
COUNTED = ("steps", "request_steps", "drafts", "draft_tokens", "accepted_tokens", "group_hits", "gate")


def batch_limit() -> int:
    """The largest batch that is drafted for, as the environment says; -1: any. Raises ValueError for anything else."""
    value = os.environ.get(BATCH_LIMIT, "-1")
    try:
        limit = int(value)
    except ValueError:
        limit = -2
    if limit < -1:
        raise ValueError(f"{BATCH_LIMIT} = {value!r} must be a batch size, or -1 for no limit")
    return limit


@dataclass(eq=False, slots=True)
class _Request:
    """A running request."""

    req_id: str
    record: Any  # the engine's own
    known: int  # tokens that the drafter has, the prompt's among them
    most: int  # tokens that it can come to
    chances: list[float] = field(default_factory=list)  # of its last draft's tokens, as Gate.choose takes them


@dataclass(slots=True)
class _Step:
    """What a step brought to one row of the batch."""

    row: int
    request: _Request
    tokens: np.ndarray
    room: int  # draft tokens that can still become output


class SamProposer:
    """Called once after each step of the engine, when the step's tokens are in the batch.

    vllm_config: its `speculative_config.{num_speculative_tokens, sam_config}` and `model_config.max_model_len` are
    read. Raises ValueError for a wrong sam_config or VLLM_SPECULATIVE_BATCH_SIZE_THRE.
    """

    def __init__(self, vllm_config: Any):
        speculative = vllm_config.speculative_config
        k = speculative.num_speculative_tokens
        config = SamConfig.parse(speculative.sam_config, k)
        self._max_model_len = vllm_config.model_config.max_model_len
        self._drafter = SamDrafter(k, **config.drafter_settings())
        self._gate = Gate(batch_limit(), config.gate)
        _compile()
        self._running: dict[str, _Request] = {}
        self._last_call = perf_counter()
        self._decoded: set[str] = set()  # requests with new tokens in the last step
        self._counts = dict.fromkeys(COUNTED, 0)

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """There is no model."""

    def propose(
        self,
        input_batch: Any,
        requests: Mapping[str, Any],
        verified: Mapping[str, Sequence[int]],
        padded: bool = False,
    ) -> list[list[int]]:
        """One draft, perhaps empty, for each request of the batch.

        input_batch: vLLM's InputBatch; read are `req_ids`, the array rows `token_ids_cpu[i, :num_tokens_no_spec[i]]`,
        `num_prompt_tokens` and `spec_decode_unsupported_reqs`. requests: all live requests by id, also preempted ones;
        whoever is missing has ended. verified: the draft tokens that the engine checked in the step that just ended, by
        request, with what was appended to a draft. padded: the engine will fill all drafts up to k, if there is any.
        """
        self._finish_missing(requests)
        batch = len(input_batch.req_ids)
        steps = self._new_tokens(input_batch, requests)
        self._observe(batch, steps, verified)
        unsupported = input_batch.spec_decode_unsupported_reqs
        asks = self._gate.asks(batch)
        asked, fed = [], []
        for step in steps:
            wanted = asks and step.room > 0 and step.request.req_id not in unsupported
            (asked if wanted else fed).append(step)
        if fed:
            self._drafter.extend_batch(*_packed(fed))
        drafts: list[list[int]] = [[] for _ in range(batch)]
        if asked:
            self._draft(asked, batch, padded, drafts)
        self._counts["gate"] += not asks
        return drafts

    def _draft(self, asked: list[_Step], batch: int, padded: bool, drafts: list[list[int]]) -> None:
        """Fill in the drafts for `asked`, as far as the gate keeps them."""
        begun = perf_counter()
        least = max(self._gate.least_chance, self._drafter.min_probability)
        tokens, lengths, chances = self._drafter.propose(*_packed(asked), least)
        lengths = np.minimum(lengths, [step.room for step in asked])
        seconds = perf_counter() - begun
        lengths, refused = self._gate.choose(batch, chances, lengths, padded=padded, seconds=seconds)
        self._counts["gate"] += refused
        rows = zip(asked, tokens.tolist(), chances.tolist(), lengths.tolist(), strict=True)
        for step, draft, of_tokens, length in rows:
            if length:
                drafts[step.row] = draft[:length]
                step.request.chances = of_tokens[:length]
                self._counts["drafts"] += 1
                self._counts["group_hits"] += self._drafter.shares(step.request.req_id)

    def stats(self) -> dict[str, float]:
        """Counts since the start, and the bytes in use now.

        steps; request_steps: decoding requests, summed over the steps; drafts; draft_tokens: those that the engine has
        verified; accepted_tokens; group_hits: drafts for requests whose group holds others' text; gate: the highest
        chance of acceptance that it refused, 1 where it asked for no drafts, summed over the steps.
        """
        return {
            **self._counts,
            "bytes": self._drafter.stats()["bytes_used"],
        }

    def _finish_missing(self, requests: Mapping[str, Any]) -> None:
        # An id may have been used again since the last step: then the record is another.
        ended = [req_id for req_id, known in self._running.items() if requests.get(req_id) is not known.record]
        for req_id in ended:
            self._drafter.finish(req_id)
            del self._running[req_id]

    def _new_tokens(self, input_batch: Any, requests: Mapping[str, Any]) -> list[_Step]:
        """The tokens that the drafter doesn't know; no step for a request whose prompt is still being computed."""
        steps = []
        lengths = input_batch.num_tokens_no_spec[: len(input_batch.req_ids)].tolist()
        for row, (req_id, length) in enumerate(zip(input_batch.req_ids, lengths, strict=True)):
            request = self._running.get(req_id)
            if request is None:
                prompt = input_batch.token_ids_cpu[row, : input_batch.num_prompt_tokens[row]]
                request = self._begin(req_id, requests[req_id], prompt)
            if length > request.known:
                # The engine adds a token of its own to those of a draft that it accepts.
                room = request.most - length - 1
                steps.append(_Step(row, request, input_batch.token_ids_cpu[row, request.known : length], room))
                request.known = length
        return steps

    def _begin(self, req_id: str, record: Any, prompt: np.ndarray) -> _Request:
        self._drafter.add_request(req_id, prompt)
        params = record.sampling_params
        most = self._max_model_len
        if params is not None and params.max_tokens is not None:
            most = min(most, len(prompt) + params.max_tokens)
        self._running[req_id] = _Request(req_id, record, len(prompt), most)
        return self._running[req_id]

    def _observe(self, batch: int, steps: list[_Step], verified: Mapping[str, Sequence[int]]) -> None:
        """Count the step that just ended, and tell the gate."""
        computed = drafted = accepted = 0
        expected = 0.0
        decoded = set()
        for step in steps:
            request = step.request
            decoded.add(request.req_id)
            length = len(request.chances)
            checked = len(verified.get(request.req_id, ()))
            computed += checked
            drafted += min(checked, length)
            accepted += min(len(step.tokens) - 1, checked, length)
            expected += sum(request.chances[:checked])
            request.chances = []
        now = perf_counter()
        if decoded and len(decoded) == batch and decoded <= self._decoded:  # nothing was prefilled
            self._gate.observe(batch, computed, expected, accepted, now - self._last_call)
        self._last_call = now
        self._counts["request_steps"] += len(decoded & self._decoded)
        self._decoded = decoded
        self._counts["steps"] += 1
        self._counts["draft_tokens"] += drafted
        self._counts["accepted_tokens"] += accepted


def _compile() -> None:
    """Compile all of the drafter's code, or read it from disk, rather now than in a step of the engine."""
    drafter = SamDrafter(1, 1 << 18, history_tokens=4)
    for _ in range(3):  # the second leaves more than the history keeps, the third reads that again
        drafter.add_request("", [0])
        drafter.propose_lists([""], [[1, 0, 1, 0]])
        drafter.finish("")


def _packed(steps: list[_Step]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """(req_ids, tokens, offsets) as SamDrafter takes them."""
    offsets = list(accumulate((len(step.tokens) for step in steps), initial=0))
    tokens = np.concatenate([step.tokens for step in steps])
    return [step.request.req_id for step in steps], tokens, np.array(offsets)
