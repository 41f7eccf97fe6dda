"""Which batches have a graph: capture sizes and what they cost."""

from itertools import product

import pytest

from qwen3_rl.npugraph.sizes import capture_sizes, graph_cost, one_token_sizes, request_counts


def test_a_batch_is_padded_by_less_than_its_half():
    for largest in range(1, 300):
        counts = request_counts(largest)
        assert counts[-1] == largest
        for batch in range(1, largest + 1):
            graph = min(count for count in counts if count >= batch)
            assert graph < 2 * batch if batch < 9 else 2 * graph < 3 * batch + 1


def test_few_graphs_are_enough():
    assert request_counts(256) == [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256]


@pytest.mark.parametrize("k", [0, 1, 2, 3, 5, 15])
def test_every_size_can_be_captured(k):
    for max_num_seqs, draft_limit, one_token in product((1, 2, 7, 16, 100), (None, 0, 4, 32, 999), (False, True)):
        check_sizes(k, max_num_seqs, draft_limit, one_token)


def check_sizes(k, max_num_seqs, draft_limit, one_token):
    sizes = capture_sizes(max_num_seqs, k, draft_limit, one_token)
    assert sizes == sorted(set(sizes))
    assert all(size % (k + 1) == 0 and 0 < size <= max_num_seqs * (k + 1) for size in sizes)
    drafting = min(draft_limit, max_num_seqs) if k and draft_limit is not None else max_num_seqs
    if drafting:
        assert drafting * (k + 1) in sizes  # the largest batch that is drafted for replays a graph
    if k and one_token and max_num_seqs > k:
        assert max(one_token_sizes(sizes, max_num_seqs)) == max_num_seqs // (k + 1) * (k + 1)


def test_large_batches_that_are_not_drafted_for_have_no_drafting_graph():
    assert capture_sizes(128, 3, 32) == [4, 8, 16, 32, 48, 64, 96, 128]
    assert capture_sizes(128, 3, 32, one_token=True) == [4, 8, 12, 16, 24, 32, 48, 64, 96, 128]
    assert capture_sizes(128, 3, 0) == []


@pytest.mark.parametrize("draft_limit", [None, 0, 32])
def test_without_drafts_the_limit_means_nothing(draft_limit):
    assert capture_sizes(64, 0, draft_limit) == request_counts(64)


def test_what_graphs_hold():
    cost = graph_cost([4, 8, 16], [4], layers=64, hidden=5120, intermediate=3200)
    assert (cost.graphs, cost.tasks) == (4, 256)
    assert cost.pool_bytes == 16 * (2 * 5120 + 2 * 3200) * 2
    assert graph_cost([], [], 64, 5120, 3200).graphs == 0
