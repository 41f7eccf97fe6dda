"""`SamProposer`: SAM drafts for an engine's batch. Knows vLLM's configuration and batch by their attributes only."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from qwen3_rl.sam.config import SamConfig
from qwen3_rl.sam.drafter import SamDrafter
from qwen3_rl.sam.gate import Gate

BATCH_LIMIT = "VLLM_SPECULATIVE_BATCH_SIZE_THRE"


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
    """A running request: the engine's own record of it, its tokens that the drafter knows, its last draft's length."""

    record: Any
    known: int
    drafted: int = 0


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
        self._gate = Gate(k, batch_limit(), config.gate)
        _compile(self._drafter)
        self._running: dict[str, _Request] = {}
        self._last_call = perf_counter()
        self._decoded: set[str] = set()  # requests with new tokens in the last step
        self._level = 0
        self._counts = dict.fromkeys(("steps", "drafts", "draft_tokens", "accepted_tokens", "group_hits"), 0)

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """There is no model."""

    def propose(
        self, input_batch: Any, requests: Mapping[str, Any], verified: Mapping[str, Sequence[int]] | None = None
    ) -> list[list[int]]:
        """One draft, perhaps empty, for each request of the batch.

        input_batch: vLLM's InputBatch; read are `req_ids`, the array rows `token_ids_cpu[i, :num_tokens_no_spec[i]]`,
        `num_prompt_tokens` and `spec_decode_unsupported_reqs`. requests: all live requests by id, also preempted ones;
        whoever is missing has ended. verified: the draft tokens that the engine checked in the step that just ended, by
        request (None: it checked all drafts of the last call).
        """
        self._finish_missing(requests)
        req_ids = input_batch.req_ids
        lengths = input_batch.num_tokens_no_spec[: len(req_ids)].tolist()
        prompts = input_batch.num_prompt_tokens[: len(req_ids)].tolist()
        new = [
            self._new_tokens(req_id, input_batch.token_ids_cpu[i], prompts[i], lengths[i], requests)
            for i, req_id in enumerate(req_ids)
        ]
        self._observe(req_ids, new, verified)
        self._level = self._gate.draft_tokens(len(req_ids))
        rooms = [
            min(self._level, self._room(requests[req_id], prompts[i], lengths[i]))
            if len(new[i]) and req_id not in input_batch.spec_decode_unsupported_reqs
            else 0
            for i, req_id in enumerate(req_ids)
        ]
        self._feed([i for i, room in enumerate(rooms) if room <= 0 and len(new[i])], req_ids, new)
        return self._draft([i for i, room in enumerate(rooms) if room > 0], req_ids, new, rooms)

    def stats(self) -> dict[str, float]:
        """Since the start: steps, drafts, draft_tokens that were verified, accepted_tokens, group_hits (drafts for
        requests whose group holds others' text), gate_switches. Now: bytes, and gate, the draft tokens that a request
        may have."""
        now = {"bytes": self._drafter.stats()["bytes_used"], "gate": self._level, "gate_switches": self._gate.switches}
        return {**self._counts, **now}

    def _finish_missing(self, requests: Mapping[str, Any]) -> None:
        # An id may have been used again since the last step: then the record is another.
        ended = [req_id for req_id, known in self._running.items() if requests.get(req_id) is not known.record]
        for req_id in ended:
            self._drafter.finish(req_id)
            del self._running[req_id]

    def _new_tokens(
        self, req_id: str, row: np.ndarray, prompt: int, length: int, requests: Mapping[str, Any]
    ) -> np.ndarray:
        """The request's tokens that the drafter doesn't know; empty while its prompt is being computed."""
        known = self._running.get(req_id)
        if known is None:
            self._drafter.add_request(req_id, row[:prompt])
            known = self._running[req_id] = _Request(requests[req_id], prompt)
        tokens = row[known.known : length]
        known.known = length
        return tokens

    def _room(self, record: Any, prompt: int, length: int) -> int:
        """How many draft tokens can still become output: the engine adds one of its own to those it accepts."""
        room = self._max_model_len - length
        params = record.sampling_params
        if params is not None and params.max_tokens is not None:
            room = min(room, params.max_tokens - (length - prompt))
        return room - 1

    def _observe(
        self, req_ids: Sequence[str], new: list[np.ndarray], verified: Mapping[str, Sequence[int]] | None
    ) -> None:
        """Count the step that just ended, and tell the gate."""
        drafted = accepted = 0
        for req_id, tokens in zip(req_ids, new, strict=True):
            known = self._running[req_id]
            checked = known.drafted if verified is None else len(verified.get(req_id, ()))
            known.drafted = 0
            if checked and len(tokens):
                drafted += checked
                accepted += min(len(tokens) - 1, checked)
        now = perf_counter()
        decoded = {req_id for req_id, tokens in zip(req_ids, new, strict=True) if len(tokens)}
        if len(decoded) == len(req_ids) and decoded <= self._decoded:  # nothing was prefilled
            self._gate.observe(len(req_ids), accepted, now - self._last_call)
        self._last_call = now
        self._decoded = decoded
        self._counts["steps"] += 1
        self._counts["draft_tokens"] += drafted
        self._counts["accepted_tokens"] += accepted

    def _feed(self, rows: list[int], req_ids: Sequence[str], new: list[np.ndarray]) -> None:
        if rows:
            self._drafter.extend_batch([req_ids[i] for i in rows], *_packed(rows, new))

    def _draft(
        self, rows: list[int], req_ids: Sequence[str], new: list[np.ndarray], rooms: list[int]
    ) -> list[list[int]]:
        drafts: list[list[int]] = [[] for _ in req_ids]
        if not rows:
            return drafts
        tokens, lengths = self._drafter.propose([req_ids[i] for i in rows], *_packed(rows, new))
        for i, row, length in zip(rows, tokens.tolist(), lengths.tolist(), strict=True):
            drafts[i] = row[: min(length, rooms[i])]
            if drafts[i]:
                self._running[req_ids[i]].drafted = len(drafts[i])
                self._counts["drafts"] += 1
                self._counts["group_hits"] += self._drafter.shares(req_ids[i])
        return drafts


def _compile(drafter: SamDrafter) -> None:
    """Compile the drafter's code, or read it from disk, rather now than in a step of the engine."""
    drafter.add_request("", [0])
    drafter.propose_lists([""], [[1, 0]])
    drafter.finish("")
    drafter.clear()


def _packed(rows: list[int], new: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(tokens, offsets) as SamDrafter takes them."""
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(new[i]) for i in rows], out=offsets[1:])
    return np.concatenate([new[i] for i in rows]), offsets
