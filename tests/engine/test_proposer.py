"""SamProposer on batches made by hand: what an engine does to them over time."""

from types import SimpleNamespace

import numpy as np
import pytest

from qwen3_rl.sam.proposer import BATCH_LIMIT, SamProposer

K = 4
MAX_MODEL_LEN = 64
PROMPT = [1, 2, 3, 4, 5, 1, 2, 3]


class Engine:
    """Requests, and which of them are in the batch."""

    def __init__(self, **sam_config):
        speculative = SimpleNamespace(num_speculative_tokens=K, sam_config={"gate": False, **sam_config})
        model = SimpleNamespace(max_model_len=MAX_MODEL_LEN)
        self.proposer = SamProposer(SimpleNamespace(speculative_config=speculative, model_config=model))
        self.requests = {}
        self.texts = {}
        self.unsupported = set()
        self.drafts = {}

    def begin(self, req_id, prompt=PROMPT, max_tokens=None):
        params = SimpleNamespace(max_tokens=max_tokens)
        self.requests[req_id] = SimpleNamespace(sampling_params=params, prompt=len(prompt))
        self.texts[req_id] = list(prompt)

    def end(self, req_id):
        del self.requests[req_id], self.texts[req_id]

    def step(self, new, verified=None):
        """new: {req_id: tokens} of the batch; verified: if not said, the last drafts. Returns {req_id: draft}."""
        rows = np.full((len(new), MAX_MODEL_LEN + 8), 99, dtype=np.int32)
        for row, (req_id, tokens) in zip(rows, new.items(), strict=True):
            self.texts[req_id] += tokens
            row[: len(self.texts[req_id])] = self.texts[req_id]
        batch = SimpleNamespace(
            req_ids=list(new),
            token_ids_cpu=rows,
            num_tokens_no_spec=np.array([len(self.texts[i]) for i in new], dtype=np.int32),
            num_prompt_tokens=np.array([self.requests[i].prompt for i in new], dtype=np.int32),
            spec_decode_unsupported_reqs=self.unsupported,
        )
        verified = self.drafts if verified is None else verified
        self.drafts = dict(zip(new, self.proposer.propose(batch, self.requests, verified), strict=True))
        return self.drafts


@pytest.fixture
def engine():
    return Engine()


def test_a_request_is_drafted_for_from_its_prompt(engine):
    engine.begin("a")
    assert engine.step({"a": [4]}) == {"a": [5, 1, 2, 3]}


def test_nothing_is_drafted_while_a_prompt_is_being_computed(engine):
    engine.begin("a")
    assert engine.step({"a": []}) == {"a": []}
    assert engine.step({"a": [4]}) == {"a": [5, 1, 2, 3]}


def test_siblings_share_running_and_finished_text(engine):
    engine.begin("a")
    engine.step({"a": [10]})
    engine.step({"a": [11, 12, 13, 14, 15]})
    engine.begin("b")
    assert engine.step({"a": [16], "b": [10]})["b"] == [11, 12, 13, 14]
    engine.end("a")
    engine.begin("c")
    assert engine.step({"b": [11], "c": [10, 11]})["c"] == [12, 13, 14, 15]
    assert engine.proposer.stats()["group_hits"] == 3


def test_sharing_self_keeps_siblings_apart():
    engine = Engine(sharing="self")
    engine.begin("a")
    engine.begin("b")
    engine.step({"a": [10, 11, 12, 13]})
    assert engine.step({"a": [14], "b": [10]})["b"] == []
    assert engine.proposer.stats()["group_hits"] == 0


def test_rows_move_and_preempted_requests_keep_their_text(engine):
    for req_id, first in (("a", 20), ("b", 30)):
        engine.begin(req_id, [first + i for i in range(6)])
        engine.step({req_id: [first + 9, first, first + 1]})
    assert engine.step({"b": [32], "a": [22]}) == {"a": [23, 24, 25, 29], "b": [33, 34, 35, 39]}
    engine.step({"b": [33]})  # a is preempted
    engine.step({"b": [34], "a": []})  # and computed again
    assert engine.step({"b": [35], "a": [23]}) == {"a": [24, 25, 29, 20], "b": [39, 30, 31, 32]}


def test_an_ended_request_is_forgotten_even_when_its_id_returns_at_once(engine):
    engine.begin("a", [1, 2, 3, 4])
    engine.step({"a": [1, 2]})
    engine.end("a")
    engine.begin("a", [5, 6, 7, 8])
    assert engine.step({"a": [5, 6]}) == {"a": [7, 8, 5, 6]}
    engine.end("a")
    engine.begin("other")
    engine.step({"other": [1]})
    assert list(engine.proposer._running) == ["other"]
    assert engine.proposer._drafter.stats()["requests"] == 1


@pytest.mark.parametrize(("text", "drafted"), [(58, 4), (60, 3), (62, 1), (63, 0), (64, 0)])
def test_no_draft_reaches_beyond_the_model_length_and_others_are_drafted_for(engine, text, drafted):
    engine.begin("long", [i % 5 for i in range(10)])
    engine.begin("short")
    drafts = engine.step({"long": [i % 5 for i in range(10, text)], "short": [4]})
    assert (len(drafts["long"]), len(drafts["short"])) == (drafted, 4)
    assert text + drafted + 1 <= MAX_MODEL_LEN or drafted == 0


def test_no_draft_reaches_beyond_what_the_request_may_still_write(engine):
    engine.begin("a", max_tokens=4)
    assert engine.step({"a": [4]}) == {"a": [5, 1]}
    assert engine.step({"a": [5, 1]}) == {"a": []}


def test_requests_that_speculation_cannot_serve_are_not_drafted_for(engine):
    engine.begin("a")
    engine.begin("b")
    engine.unsupported = {"a"}
    assert engine.step({"a": [4], "b": [4]}) == {"a": [], "b": [5, 1, 2, 3]}


def test_what_the_engine_verified_is_counted(engine):
    engine.begin("a")
    engine.begin("b")
    engine.step({"a": [4], "b": [4]}, {})
    engine.step({"a": [5, 1, 9], "b": [7]}, {"a": [5, 1, 2, 3], "b": [5, 1]})  # b's draft was cut
    engine.step({"a": [8]}, {})  # a's draft was dropped
    stats = engine.proposer.stats()
    assert (stats["steps"], stats["request_steps"]) == (3, 3)
    assert (stats["draft_tokens"], stats["accepted_tokens"]) == (6, 2)


def test_large_batches_are_not_drafted_for_but_read(monkeypatch):
    monkeypatch.setenv(BATCH_LIMIT, "1")
    engine = Engine()
    engine.begin("a")
    engine.begin("b", [9, 9])
    assert engine.step({"a": [10, 11, 12], "b": [7]}) == {"a": [], "b": []}
    assert engine.step({"a": [13, 10, 11], "b": [7]}) == {"a": [], "b": []}
    engine.end("b")
    assert engine.step({"a": [12]}) == {"a": [13, 10, 11, 12]}
    assert engine.proposer.stats()["gate"] == 2  # of the first two steps, one each


@pytest.mark.parametrize("value", ["many", "-2", "1.5", ""])
def test_a_wrong_batch_limit_is_named_with_its_value(monkeypatch, value):
    monkeypatch.setenv(BATCH_LIMIT, value)
    with pytest.raises(ValueError, match=f"{BATCH_LIMIT} = '{value}'"):
        Engine()


def test_the_gate_hears_of_steps_that_only_decode(engine, monkeypatch):
    heard = []

    def observe(batch, drafted, expected, accepted, seconds):
        heard.append((batch, drafted, accepted))

    monkeypatch.setattr(engine.proposer._gate, "observe", observe)
    engine.begin("a")
    engine.step({"a": []})
    engine.step({"a": [4]})
    engine.step({"a": [5, 1, 2, 9]})
    engine.begin("b")
    engine.step({"a": [7], "b": [4]})  # b's prompt was computed in this step
    engine.step({"a": [8], "b": [5, 1, 7]})
    engine.step({"a": [8]})  # b is preempted
    engine.step({"a": [8], "b": [6]})  # b is computed again
    assert heard == [(1, 4, 3), (2, 4, 2), (1, 0, 0)]
