import itertools

import numpy as np
import pytest
from sam_traces import sibling_traces

from qwen3_rl.sam import SamDrafter


def accepted(drafter, traces, sharing_epoch=0):
    """Drafted tokens that were right, over all siblings in lockstep."""
    right = 0
    for group in traces["groups"]:
        texts = group["epochs"][sharing_epoch]
        reqs = [(sharing_epoch, i) for i in range(len(texts))]
        for req in reqs:
            drafter.add_request(req, group["prompt"])
        at = dict.fromkeys(reqs, 0)
        new = {req: text[:1] for req, text in zip(reqs, texts, strict=True)}
        while new:
            drafts = drafter.propose_lists(list(new), list(new.values()))
            for req, draft in zip(list(new), drafts, strict=True):
                text = texts[req[1]]
                at[req] += len(new[req])
                rest = text[at[req] :]
                same = len(list(itertools.takewhile(lambda p: p[0] == p[1], zip(draft, rest, strict=False))))
                right += same
                new[req] = rest[: same + 1]
                if not new[req]:
                    del new[req]
                    drafter.finish(req)
    return right


def test_a_repeated_text_is_drafted():
    drafter = SamDrafter(4)
    drafter.add_request("a", [1, 2, 3, 4, 5, 6, 7])
    drafts, lengths, _ = drafter.propose(["a"], np.array([3], dtype=np.int32), np.array([0, 1]))
    assert drafts.shape == (1, 4)
    assert drafts[0, : lengths[0]].tolist() == [4, 5, 6, 7]


def test_siblings_share_and_strangers_do_not():
    drafter = SamDrafter(3)
    drafter.add_request("a", [1, 2])
    drafter.add_request("sibling", [1, 2])
    drafter.add_request("stranger", [1, 2, 3])
    drafter.propose_lists(["a"], [[10, 11, 12, 13]])
    assert drafter.propose_lists(["sibling", "stranger"], [[10], [10]]) == [[11, 12, 13], []]
    alone = SamDrafter(3, sharing="self")
    alone.add_request("a", [1, 2])
    alone.add_request("sibling", [1, 2])
    alone.propose_lists(["a"], [[10, 11, 12, 13]])
    assert alone.propose_lists(["sibling"], [[10]]) == [[]]


def test_the_most_frequent_continuation_wins_until_use_says_otherwise():
    drafter = SamDrafter(1)
    drafter.add_request("a", [1, 2, 1, 2, 1, 2, 1, 3, 9])
    assert drafter.propose_lists(["a"], [[1]]) == [[2]]


def test_the_last_epoch_helps_and_is_bounded():
    traces = sibling_traces(groups=4)
    fresh = accepted(SamDrafter(5), traces, 1)
    drafter = SamDrafter(5)
    accepted(drafter, traces, 0)
    assert accepted(drafter, traces, 1) > fresh
    bounded = SamDrafter(5, history_tokens=100)
    for _ in range(5):
        accepted(bounded, traces, 0)
    once = bounded.stats()["bytes_used"]
    for _ in range(5):
        accepted(bounded, traces, 0)
    assert bounded.stats()["bytes_used"] <= 1.2 * once


@pytest.mark.parametrize("settings", [{"history_tokens": 0}, {"sharing": "self"}])
def test_memory_returns_to_its_start_when_all_requests_end(settings):
    drafter = SamDrafter(5, **settings)
    start = drafter.stats()
    accepted(drafter, sibling_traces())
    assert drafter.stats() == start | {"bytes_reserved": drafter.stats()["bytes_reserved"]}


def test_clear_forgets_everything():
    drafter = SamDrafter(5)
    start = drafter.stats()
    accepted(drafter, sibling_traces())
    assert drafter.stats()["bytes_used"] > 0
    drafter.clear()
    assert drafter.stats() == start


def test_equal_calls_give_equal_drafts():
    traces = sibling_traces(seed=3)
    assert accepted(SamDrafter(5), traces) == accepted(SamDrafter(5), traces)


def test_draft_length_is_bounded_by_match_length_and_by_chance():
    def draft(**settings):
        drafter = SamDrafter(8, **settings)
        drafter.add_request("a", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])
        return drafter.propose_lists(["a"], [[1]])[0]

    assert len(draft()) == 8
    assert len(draft(per_match=2.0)) == 2
    assert len(draft(min_match=2)) == 0
    assert len(draft(min_probability=0.3)) < 8
    assert draft(min_probability=1.0) == []


def test_a_prompt_larger_than_the_memory_is_survived():
    drafter = SamDrafter(4, 1 << 18)
    drafter.add_request("a", np.arange(50_000) % 7919)
    for start in range(0, 3000, 50):
        drafter.propose_lists(["a"], [list(range(start, start + 50))])
    assert drafter.stats()["bytes_used"] <= 1 << 18
    assert drafter.stats()["evicted"] > 0
    drafter.finish("a")


def test_degenerate_repetition():
    drafter = SamDrafter(5)
    drafter.add_request("a", [7] * 5000)
    assert drafter.propose_lists(["a"], [[7]]) == [[7] * 5]


def test_wrong_use_is_refused_and_changes_nothing():
    drafter = SamDrafter(3)
    drafter.add_request("a", [1, 2])
    with pytest.raises(ValueError, match="already running"):
        drafter.add_request("a", [1])
    with pytest.raises(ValueError, match="isn't running"):
        drafter.propose_lists(["a", "b"], [[1], [2]])
    with pytest.raises(ValueError, match="isn't running"):
        drafter.finish("b")
    with pytest.raises(ValueError, match="isn't running"):
        drafter.match("b")
    with pytest.raises(ValueError, match="don't fit"):
        drafter.propose(["a"], np.array([1, 2], dtype=np.int32), np.array([0, 1]))
    with pytest.raises(ValueError, match="new tokens of 2"):
        drafter.propose_lists(["a"], [[1], [2]])
    with pytest.raises(ValueError, match="not -1"):
        drafter.propose_lists(["a"], [[5, -1]])
    for ids in ([-1], [1.5], [[1]], [1 << 31]):
        with pytest.raises(ValueError, match="token ids"):
            drafter.add_request("c", ids)
    assert drafter.stats()["requests"] == 1


@pytest.mark.parametrize(
    "settings",
    [{"k": 0}, {"k": 65}, {"max_bytes": 10}, {"history_tokens": -1}, {"min_match": 0}, {"sharing": "all"}],
)
def test_settings_outside_their_range_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        SamDrafter(**({"k": 3} | settings))


def test_more_running_groups_than_memory():
    """Groups that find no room draft nothing and do no harm; with room they draft again."""
    drafter = SamDrafter(4, 1 << 18)
    for group in range(400):
        drafter.add_request(group, [group, group + 1, group])
    for step in range(30):
        drafter.propose_lists(list(range(400)), [[step % 7, step % 5] for _ in range(400)])
        assert drafter.stats()["bytes_used"] <= 1 << 18
    assert drafter.match(0).count >= 0
    for group in range(400):
        drafter.finish(group)
    drafter.add_request("late", [1, 2, 3, 4, 5])
    assert drafter.propose_lists(["late"], [[1]]) == [[2, 3, 4, 5]]
