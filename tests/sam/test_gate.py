"""The gate against a made-up engine whose best level is known."""

import random
from collections.abc import Callable

import pytest

from qwen3_rl.sam.gate import Gate

K = 5


def run(
    gate: Gate, batch: int, seconds: Callable[[int], float], chance: float, steps: int, noise: float = 0.2
) -> tuple[float, list[int]]:
    """Tokens a second over `steps` steps, and the levels. A draft token after accepted ones is accepted with `chance`.

    seconds: wall time of a step as a function of the tokens verified in it; single steps vary by `noise`.
    """
    dice = random.Random(batch)
    tokens = time = 0.0
    levels = []
    for _ in range(steps):
        level = gate.draft_tokens(batch)
        accepted = 0
        for _ in range(batch):
            hits = 0
            while hits < level and dice.random() < chance:
                hits += 1
            accepted += hits
        took = seconds(batch * (1 + level)) * (1 + noise * dice.random())
        gate.observe(batch, accepted, took)
        levels.append(level)
        tokens += batch + accepted
        time += took
    return tokens / time, levels


class Always(Gate):
    """One level, whatever happens."""

    def __init__(self, level: int):
        super().__init__(K)
        self.level = level

    def draft_tokens(self, batch: int) -> int:
        return self.level


MEMORY_BOUND = lambda tokens: 1.0 + 0.002 * tokens  # noqa: E731
COMPUTE_BOUND = lambda tokens: 0.1 + 0.05 * tokens  # noqa: E731


@pytest.mark.parametrize("seconds", [MEMORY_BOUND, COMPUTE_BOUND])
@pytest.mark.parametrize("batch", [1, 4, 64])
@pytest.mark.parametrize("chance", [0.02, 0.4, 0.8])
def test_nearly_as_fast_as_the_best_fixed_level(batch, seconds, chance):
    rates = [run(Always(level), batch, seconds, chance, 1500)[0] for level in (0, 3, 5)]
    rate, _ = run(Gate(K), batch, seconds, chance, 1500)
    assert rate > 0.96 * max(rates)


def test_off_and_on_again_when_the_acceptance_moves():
    gate = Gate(K)
    _, levels = run(gate, 16, COMPUTE_BOUND, 0.02, 400)
    assert levels[-200:].count(0) > 180
    _, levels = run(gate, 16, lambda tokens: 1.0 + 0.001 * tokens, 0.8, 1500)
    assert levels[-200:].count(0) < 50


def test_noise_alone_hardly_moves_it():
    gate = Gate(K)
    run(gate, 8, lambda tokens: 1.0, 0.0, 4000, noise=0.05)  # all levels are equal
    assert gate.switches <= 2


def test_trials_of_what_is_far_worse_are_rare():
    _, levels = run(Gate(K), 1, MEMORY_BOUND, 0.8, 4000)
    assert 0 < levels[1000:].count(0) < 0.015 * 3000


def test_a_limit_on_the_batch():
    gate = Gate(K, batch_limit=8, adaptive=False)
    assert [gate.draft_tokens(batch) for batch in (1, 8, 9)] == [K, K, 0]
    assert Gate(K, batch_limit=0).draft_tokens(1) == 0


def test_a_new_size_begins_where_its_neighbour_stands():
    gate = Gate(K)
    run(gate, 64, COMPUTE_BOUND, 0.02, 400)
    assert gate.draft_tokens(32) == 0


def test_steps_that_were_not_asked_for_are_not_counted():
    gate = Gate(K, batch_limit=8)
    gate.draft_tokens(9)
    for _ in range(1000):
        gate.observe(9, 0, 1e-9)
    assert gate.switches == 0
