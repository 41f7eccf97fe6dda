"""Estimates of response lengths, and the order made from them."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3_rl.length_aware.order import OrderSettings, epoch_order, tail_rows
from qwen3_rl.length_aware.statistics import LengthStatistics, group_moments


def observe(statistics: LengthStatistics, rows: dict[int, list[int]], capped_from: int | None = None) -> None:
    ids = [row for row, lengths in rows.items() for _ in lengths]
    lengths = [length for lengths in rows.values() for length in lengths]
    statistics.update(group_moments(np.array(ids), np.array(lengths)), capped_from)


def test_first_observation_counts_whole_then_the_average_moves():
    statistics = LengthStatistics(2, ema_decay=0.75)
    observe(statistics, {1: [100, 100]})
    assert statistics.typical(np.array([1])) == pytest.approx([100])
    observe(statistics, {1: [1600, 1600]})
    assert statistics.typical(np.array([1])) == pytest.approx([200])  # a quarter of four doublings
    assert statistics.never_seen() == 1


@pytest.mark.parametrize(("decay", "expected"), [(0.0, 400), (1.0, 100)])
def test_the_ends_of_ema_decay(decay, expected):
    statistics = LengthStatistics(1, decay)
    for length in (100, 200, 400):
        observe(statistics, {0: [length]})
    assert statistics.typical() == pytest.approx([expected])


def test_the_longest_of_the_siblings_is_expected_not_their_mean():
    """16 siblings of each row; rows with another spread wait longer although their means are equal."""
    rng = np.random.default_rng(0)
    rows, siblings = 4000, 16
    sigma = np.where(np.arange(rows) % 2, 0.6, 0.1)
    draw = lambda: np.exp(7 + sigma[:, None] * rng.normal(size=(rows, siblings))).astype(int)  # noqa: E731
    statistics = LengthStatistics(rows, 0.7)
    for _ in range(3):
        statistics.update(group_moments(np.repeat(np.arange(rows), siblings), draw().ravel()))
    longest, seen = statistics.longest(), draw().max(axis=1)
    for half in (slice(0, None, 2), slice(1, None, 2)):
        # The geometric mean of lognormal maxima is what a normal's expected maximum gives.
        assert np.log(longest[half]).mean() == pytest.approx(np.log(seen[half]).mean(), abs=0.1)


def test_a_capped_observation_never_lowers_an_estimate():
    statistics = LengthStatistics(2, 0.5)
    observe(statistics, {0: [800, 1000], 1: [800, 1000]})
    before = statistics.longest()
    for _ in range(20):
        observe(statistics, {0: [90, 300], 1: [90, 300]}, capped_from=300)
    assert (statistics.longest() >= before).all()
    observe(statistics, {0: [90, 299], 1: [90, 300]}, capped_from=300)  # row 0 was not cut this time
    low, high = statistics.longest()
    assert low < before[0] <= high


def test_a_capped_observation_raises_an_estimate_that_is_too_low():
    statistics = LengthStatistics(1, 0.7)
    observe(statistics, {0: [100, 100]})
    for _ in range(30):  # every response runs into the cap, which is twice what was expected
        cap = int(2 * statistics.longest()[0])
        observe(statistics, {0: [cap, cap]}, capped_from=cap)
    assert statistics.longest()[0] > 10_000


@settings(deadline=None)
@given(st.data())
def test_updates_commute_with_the_order_of_siblings(data):
    pairs = data.draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40_000)), min_size=1, max_size=60))
    shuffled = data.draw(st.permutations(pairs))
    states = []
    for chosen in (pairs, shuffled):
        rows, lengths = np.array(chosen).T
        moments = group_moments(rows, lengths)
        statistics = LengthStatistics(6, 0.7)
        statistics.update(group_moments(np.arange(6), np.full(6, 500)))
        statistics.update(moments, capped_from=1000)
        states.append(vars(moments) | statistics.state())
    for name, value in states[0].items():
        np.testing.assert_array_equal(value, states[1][name], err_msg=name)


def test_batches_hold_equally_long_rows_and_the_longest_come_first_in_each():
    rng = np.random.default_rng(0)
    lengths = rng.permutation(np.arange(1, 41) * 10)
    statistics = LengthStatistics(40, 0.7)
    observe(statistics, {row: [length] * 2 for row, length in enumerate(lengths)})
    order = epoch_order(statistics, OrderSettings(8, seed=3, bucket_size=1), epoch=1)
    blocks = lengths[order].reshape(5, 8)
    assert (np.diff(blocks, axis=1) < 0).all()
    assert (np.ptp(blocks, axis=1) == 70).all()
    starts = blocks[:, 0].tolist()
    assert sorted(starts) == [80, 160, 240, 320, 400] != starts
    ordered = epoch_order(statistics, OrderSettings(8, 3, 1, shuffle_batch_blocks=False), epoch=1)
    assert (np.diff(lengths[ordered]) < 0).all()


def test_rows_of_one_bucket_are_ordered_by_their_typical_length():
    statistics = LengthStatistics(4, 0.7)
    # Expected longest about 101, 104, 102, 103, so alike for a bucket of 1000 tokens; typical lengths 50, 90, 70, 80.
    observe(statistics, {0: [25, 101], 1: [78, 104], 2: [48, 102], 3: [62, 103]})
    order = epoch_order(statistics, OrderSettings(4, bucket_size=1000), epoch=1)
    assert order.tolist() == [1, 3, 2, 0]


def test_rows_never_seen_share_a_batch_with_the_longest():
    statistics = LengthStatistics(8, 0.7)
    observe(statistics, {row: [10 * (row + 1)] for row in range(6)})
    order = epoch_order(statistics, OrderSettings(4, bucket_size=1, shuffle_batch_blocks=False), epoch=1)
    assert sorted(order[:4]) == [4, 5, 6, 7]


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_first_epoch(shuffle):
    order = epoch_order(LengthStatistics(20, 0.7), OrderSettings(5, shuffle_first_epoch=shuffle), epoch=0)
    assert (order.tolist() == list(range(20))) is not shuffle


def test_the_seed_and_the_epoch_decide():
    statistics = LengthStatistics(50, 0.7)
    draw = lambda seed, epoch: epoch_order(  # noqa: E731
        statistics, OrderSettings(5, seed, shuffle_first_epoch=True), epoch
    ).tolist()
    assert draw(1, 0) == draw(1, 0)
    assert draw(1, 0) != draw(1, 1)
    assert draw(1, 0) != draw(2, 0)


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 2**31), st.integers(1, 12))
def test_the_tail_rotates(rows, batch, seed, epochs):
    left_out = np.zeros(rows, int)
    for epoch in range(epochs):
        tail = tail_rows(rows, OrderSettings(batch, seed), epoch)
        assert len(set(tail.tolist())) == len(tail) == rows % batch
        left_out[tail] += 1
    assert left_out.max() <= math.ceil(epochs * (rows % batch) / rows)


def test_memory_of_a_million_rows():
    tracemalloc.start()
    try:
        statistics = LengthStatistics(1_000_000, 0.7)
        statistics.updates += 1
        order = epoch_order(statistics, OrderSettings(512, bucket_size=1), epoch=1)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(order) == 1_000_000
    assert held < 30e6  # 12 bytes of statistics and 8 of order a row
    assert peak < 100e6
