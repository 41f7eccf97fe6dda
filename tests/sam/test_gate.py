"""The gate against a made-up engine whose best threshold is known."""

import random
from collections.abc import Callable

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
        super().__init__()
        self._fixed = threshold

    def threshold(self, batch: int) -> float:
        return self._fixed


def run(
    gate: Gate, batch: int, price: float, chances: Callable[[random.Random], float], steps: int, fixed: float = 0.0
) -> tuple[float, list[float]]:
    """Tokens a second, and the thresholds. A step takes 1 + price * (draft tokens a request), and `fixed` more with any
    draft, all within 20 %; one in fifty is held up. Two of five requests have nothing to draft.
    """
    dice = random.Random(batch)
    tokens = time = 0.0
    thresholds = []
    for _ in range(steps):
        thresholds.append(gate.threshold(batch))
        drafted = accepted = 0
        for _ in range(batch if thresholds[-1] < 1 else 0):
            right, hit = 1.0, dice.random() < 0.6
            for _ in range(K if hit else 0):
                chance = chances(dice)
                right *= chance
                if right < thresholds[-1]:
                    break
                drafted += 1
                hit = hit and dice.random() < chance
                accepted += hit
        seconds = (1 + price * drafted / batch + fixed * (drafted > 0)) * (1 + 0.2 * dice.random())
        seconds *= 3 if dice.random() < 0.02 else 1
        gate.observe(batch, drafted, accepted, seconds)
        tokens += batch + accepted
        time += seconds
    return tokens / time, thresholds


@pytest.mark.parametrize("price", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("batch", [1, 4, 16])
@pytest.mark.parametrize("chances", CHANCES)
def test_nearly_as_fast_as_the_best_fixed_threshold(batch, price, chances):
    best = max(run(Fixed(threshold), batch, price, CHANCES[chances], 1000)[0] for threshold in THRESHOLDS)
    assert run(Gate(), batch, price, CHANCES[chances], 1500)[0] > 0.94 * best


@pytest.mark.parametrize("price", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("batch", [1, 4, 16])
@pytest.mark.parametrize("chances", CHANCES)
def test_not_slower_than_without_drafts_even_where_any_draft_costs(batch, price, chances):
    """As on a CPU, whose kernels take rows in blocks."""
    off = run(Fixed(1), batch, price, CHANCES[chances], 1000, fixed=0.2)[0]
    assert run(Gate(), batch, price, CHANCES[chances], 1500, fixed=0.2)[0] > 0.95 * off


def test_drafting_that_always_costs_and_never_pays_is_tried_rarely():
    _, thresholds = run(Gate(), 16, 0.9, CHANCES["low"], 3000, fixed=0.3)
    assert sum(threshold < 1 for threshold in thresholds[500:]) < 60


def test_off_and_on_again_when_the_acceptance_moves():
    gate = Gate()
    _, thresholds = run(gate, 16, 0.3, lambda dice: 0.35 * dice.random(), 600, fixed=0.2)
    assert sum(thresholds[-200:]) > 180
    _, thresholds = run(gate, 16, 0.05, lambda dice: 0.9, 1500)
    assert sorted(thresholds[-100:])[90] < 0.3


def test_a_price_of_nothing_lets_all_through_and_one_above_all_gains_none():
    gate = Gate()
    _, thresholds = run(gate, 4, 0.0, CHANCES["uneven"], 600)
    assert sorted(thresholds[-50:])[40] < 0.15
    _, thresholds = run(gate, 4, 2.0, CHANCES["uneven"], 600)
    assert sum(thresholds[-100:]) > 90


def test_a_limit_on_the_batch():
    gate = Gate(batch_limit=8, adaptive=False)
    assert [gate.threshold(batch) for batch in (1, 8, 9)] == [0, 0, 1]
    assert Gate(batch_limit=0).threshold(1) == 1


def test_a_new_size_begins_with_its_neighbours_price():
    gate = Gate()
    run(gate, 64, 0.02, CHANCES["high"], 400)
    assert gate.threshold(32) < 0.2
