"""The gate against a made-up engine, and against the best that a fixed threshold can do there."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from qwen3_rl.sam.gate import Gate

K = 3
THRESHOLDS = (0, 0.2, 0.5, 0.9, 1)
CHANCES = {
    "uneven": lambda dice: dice.betavariate(0.5, 0.5),
    "low": lambda dice: dice.betavariate(0.3, 3),
    "high": lambda dice: dice.betavariate(3, 0.5),
}


class Fixed(Gate):
    """One threshold, whatever happens."""

    def __init__(self, threshold: float):
        super().__init__(adaptive=False)
        self._threshold = threshold

    def choose(self, batch, chances, lengths, **more):
        kept = (np.arange(K) < lengths[:, None]) & (chances >= self._threshold)
        return kept.sum(axis=1), 0.0


def run(
    gate: Gate,
    batch: int,
    price: float,
    chances: Callable[[random.Random], float],
    steps: int,
    fixed: float = 0.0,
    truth: float = 1.0,
    first_use: float = 1.0,
    padded: bool = False,
    asking: float = 0.0,
) -> tuple[float, list[int]]:
    """Tokens a second, and the drafted tokens of each step.

    A step takes 1 + price * (draft tokens a request), and `fixed` more with any draft, all within 20 %; one in fifty is
    held up; the first two with drafts take `first_use` times as long. Two of five requests have nothing to draft.
    truth: the real chance over the one that the drafter tells. asking: seconds that making the drafts takes.
    """
    dice, engine = random.Random(batch), random.Random(batch + 1)
    tokens = time = 0.0
    drafted = []
    for _ in range(steps):
        told = np.zeros((batch, K), dtype=np.float32)
        lengths = np.zeros(batch, dtype=np.int32)
        for row in range(batch):
            lengths[row] = K if dice.random() < 0.6 else 0
            told[row] = np.cumprod([chances(dice) for _ in range(K)])
        seconds = 0.0
        if gate.asks(batch):
            lengths, refused = gate.choose(batch, told, lengths, padded=padded, seconds=asking)
            assert 0 <= refused <= 1
            seconds += asking
        else:
            lengths[:] = 0
        offered = np.arange(K) < lengths[:, None]
        expected = float(told[offered].sum())
        # Chances of whole drafts, so one number decides how far each is right.
        accepted = int((offered & (np.array([[dice.random()] for _ in range(batch)]) < truth * told)).sum())
        drafted.append(int(lengths.sum()))
        computed = K * batch if padded and drafted[-1] else drafted[-1]
        seconds += (1 + price * computed / batch + fixed * (computed > 0)) * (1 + 0.2 * engine.random())
        seconds *= 3 if engine.random() < 0.02 else 1
        if computed and sum(map(bool, drafted)) <= 2:
            seconds *= first_use
        gate.observe(batch, computed, expected, accepted, seconds)
        tokens += batch + accepted
        time += seconds
    return tokens / time, drafted


def share(drafted: list[int]) -> float:
    """Of the steps that had drafts."""
    return sum(map(bool, drafted)) / len(drafted)


@pytest.mark.parametrize("fixed", [0.0, 0.2])
@pytest.mark.parametrize("price", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("batch", [1, 4, 16])
@pytest.mark.parametrize("chances", CHANCES)
def test_as_fast_as_the_best_fixed_threshold(batch, price, chances, fixed):
    """With `fixed`, as on a CPU, whose kernels take rows in blocks; one threshold is to draft nothing."""
    best = max(run(Fixed(threshold), batch, price, CHANCES[chances], 500, fixed)[0] for threshold in THRESHOLDS)
    assert run(Gate(), batch, price, CHANCES[chances], 500, fixed)[0] > 0.95 * best


def test_drafting_that_always_costs_and_never_pays_is_tried_rarely():
    _, drafted = run(Gate(), 16, 0.9, CHANCES["low"], 2000, fixed=0.3)
    assert share(drafted[200:]) < 0.04


def test_off_and_on_again_when_the_costs_move():
    gate = Gate()
    _, drafted = run(gate, 16, 0.9, lambda dice: 0.6, 600, fixed=0.5)
    assert share(drafted[-300:]) < 0.06
    _, drafted = run(gate, 16, 0.02, lambda dice: 0.6, 1000)
    assert share(drafted[-100:]) > 0.9


@pytest.mark.parametrize("padded", [False, True])
def test_what_cost_more_than_a_whole_step_is_tried_again(padded):
    gate = Gate()
    _, drafted = run(gate, 4, 0.4, CHANCES["high"], 1000, fixed=2.0, padded=padded)
    assert share(drafted[-300:]) < 0.02
    _, drafted = run(gate, 4, 0.02, CHANCES["high"], 3000, padded=padded)
    assert share(drafted[-100:]) > 0.9


def test_chances_that_are_told_too_high_are_trusted_less():
    _, drafted = run(Gate(), 16, 0.2, lambda dice: 0.6, 600)
    assert share(drafted[-300:]) > 0.9
    _, drafted = run(Gate(), 16, 0.2, lambda dice: 0.6, 600, truth=0.25)
    assert share(drafted[-300:]) < 0.25


def test_a_slow_first_use_of_the_kernels_is_forgotten():
    _, drafted = run(Gate(), 4, 0.1, CHANCES["high"], 100, first_use=30)
    assert share(drafted[-50:]) > 0.8


def test_where_all_drafts_are_filled_up_few_do_not_pay():
    """Three tokens of 0.9 for one request of sixteen, at the price of three tokens for each."""

    def one_of_many(padded):
        gate = Gate()
        told = np.full((16, K), 0.9, dtype=np.float32)
        run(gate, 16, 0.15, CHANCES["high"], 200, padded=padded)
        kept = []
        for _ in range(50):
            if gate.asks(16):
                lengths, _ = gate.choose(16, told, np.array([K] + [0] * 15), padded=padded)
                kept.append(int(lengths.sum()))
        return share(kept)

    assert one_of_many(padded=True) < 0.1
    assert one_of_many(padded=False) > 0.9


def test_drafts_that_take_long_to_make_and_never_pay_are_rarely_asked_for():
    gate = Gate()
    asked = []
    asks = gate.asks
    gate.asks = lambda batch: asked.append(asks(batch)) or asked[-1]
    run(gate, 16, 0.9, CHANCES["low"], 1000, fixed=0.3, asking=0.1)
    assert 0.01 < sum(asked[200:]) / len(asked[200:]) < 0.15
    asked.clear()
    run(gate, 4, 0.02, CHANCES["high"], 500, asking=0.1)  # which pay: the trials without drafts do not count
    assert all(asked[-400:])
    asked.clear()
    run(gate, 16, 0.9, CHANCES["low"], 1000, fixed=0.3)
    assert all(asked[-500:])


def test_all_is_drafted_where_it_costs_nothing_and_nothing_where_it_costs_more_than_it_can_bring():
    gate = Gate()
    _, drafted = run(gate, 4, 0.0, CHANCES["uneven"], 600)
    assert share(drafted[-100:]) > 0.8
    _, drafted = run(gate, 4, 2.0, CHANCES["uneven"], 600)
    assert share(drafted[-100:]) < 0.15


def test_a_limit_on_the_batch():
    gate = Gate(batch_limit=8, adaptive=False)
    assert [gate.asks(batch) for batch in (1, 8, 9)] == [True, True, False]
    assert not Gate(batch_limit=0).asks(1)


def test_without_measuring_all_drafts_are_kept():
    lengths, refused = Gate(adaptive=False).choose(2, np.zeros((2, K), dtype=np.float32), np.array([3, 1]))
    assert (lengths.tolist(), refused) == ([3, 1], 0)


def test_a_new_size_begins_with_its_neighbours_costs():
    gate = Gate()
    run(gate, 64, 0.9, lambda dice: 0.6, 400, fixed=0.5)
    _, drafted = run(gate, 31, 0.9, lambda dice: 0.6, 30, fixed=0.5)
    assert share(drafted) < 0.1
