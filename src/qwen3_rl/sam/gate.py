"""Which drafts pay: those that make the most expected tokens a second, by the engine's measured step times.

A step that verifies d > 0 draft tokens a request takes 1 + fixed + marginal * d times as long as one without drafts.
What both come to depends on the device, the model, the context and the batch, so they are learned for each power of two
of the batch size, by least squares over the steps as they come. The drafter knows the chance of each draft token. The
number of expected tokens over the expected time is the goodput that Liu et al., "Optimizing Speculative Decoding for
Serving Large Language Models Using Goodput", 2024 (arXiv 2406.14066) choose a draft length by; here it decides token by
token.
"""

from collections import deque
from statistics import median

import numpy as np

LEAST_CHANCE = 0.05  # rarer tokens pay nowhere
FIRST_COST = (0.1, 0.3)  # fixed, marginal; a low guess is tried and mended, a high one would stay
FIRST_WEIGHT = 0.5  # of it, in steps
FIRST_TOKENS = 8.0  # expected and accepted, beside those that were
LAST_STEPS = 8  # steps without drafts that are compared with
KEPT = 0.97  # of the weight of what was seen, at each step with drafts
PLAIN_AGES = 0.1  # a step without drafts ages it by this share of one with them
CLIP = 0.3  # a step's time counts as off by at most so much: some are held up
# Gains above which drafting begins and below which it ends: a batch waits for its slowest request, which gains least.
BEGIN, END = 0.1, 0.05
TRIALS = 0.01  # share of the time that may go into finding out


class _Bucket:
    """Batches of about the same size.

    plain: seconds of the last steps without drafts. cost: (fixed, marginal). drafting: whether that pays, lately. rest:
    steps to come in which drafts are not even asked for.
    """

    def __init__(self, cost: np.ndarray):
        self.plain: deque[float] = deque(maxlen=LAST_STEPS)
        self.cost = self._first_cost = cost
        self._squares = np.zeros((2, 2))
        self._products = np.zeros(2)
        self._expected = self._accepted = 0.0
        self._credit = 0.0
        self._plain_since = 0
        self.drafting = False
        self.rest = 0

    def tick(self) -> bool:
        """Begin a step. Returns whether to ask for drafts."""
        self._credit += TRIALS
        self.rest -= 1
        return self.rest < 0 and len(self.plain) > LAST_STEPS // 2

    def decide(self, chances: np.ndarray, sizes: np.ndarray, batch: int) -> float:
        """Of the chances (float64 [n], falling), the least to draft; infinity for no drafts.

        sizes [n]: draft tokens a request that the engine computes when it takes the first, the first two, ...
        """
        fixed, marginal = np.maximum(self.cost, 0.0)
        trust = min(max((FIRST_TOKENS + self._accepted) / (FIRST_TOKENS + self._expected), 0.2), 1.5)
        times = fixed + marginal * sizes
        gains = (1 + trust * np.cumsum(chances) / batch) / (1 + times) - 1
        best = int(gains.argmax())
        gain = gains[best]
        self.drafting = gain > (END if self.drafting else BEGIN)
        costs = max(gain if self.drafting else times[best], BEGIN)
        self._credit = min(self._credit, max(costs, 1.0))  # no more than that is saved up
        trial = self._credit >= costs
        if trial:
            self._credit -= costs
        return float(chances[best]) if self.drafting != trial else float("inf")

    def observe_plain(self, seconds: float) -> None:
        self.plain.append(seconds)
        self._plain_since += 1

    def observe_drafts(self, size: float, expected: float, accepted: int, seconds: float) -> None:
        kept = KEPT ** (1 + self._plain_since * PLAIN_AGES)
        self._plain_since = 0
        self._expected = kept * self._expected + expected
        self._accepted = kept * self._accepted + accepted
        terms = np.array([1.0, size])
        guess = terms @ self.cost
        cost = np.clip(seconds / median(self.plain) - 1, guess - CLIP, guess + CLIP)
        self._squares = kept * self._squares + np.outer(terms, terms)
        self._products = kept * self._products + cost * terms
        weight = FIRST_WEIGHT * np.eye(2)
        self.cost = np.linalg.solve(self._squares + weight, self._products + weight @ self._first_cost)


class Gate:
    """Call for each step `asks`, then, if it says so, `choose`, then `observe`.

    batch_limit: larger batches are never drafted for, -1 for no limit. adaptive: follow the measured times; else all
    drafts are kept. least_chance: the drafter may leave out tokens of less.
    """

    def __init__(self, batch_limit: int = -1, adaptive: bool = True):
        self.least_chance = LEAST_CHANCE if adaptive else 0.0
        self._batch_limit = batch_limit
        self._adaptive = adaptive
        self._buckets: dict[int, _Bucket] = {}

    def asks(self, batch: int) -> bool:
        """Whether the step of `batch` requests that begins now may have drafts."""
        if 0 <= self._batch_limit < batch:
            return False
        return not self._adaptive or self._bucket(batch).tick()

    def choose(
        self, batch: int, chances: np.ndarray, lengths: np.ndarray, *, padded: bool = False, seconds: float = 0.0
    ) -> tuple[np.ndarray, float]:
        """Which drafts a step of `batch` requests verifies.

        chances: float32 [n, k], that a draft up to and with each token is accepted. lengths: of the n <= batch drafts,
        int32 [n]. padded: the engine fills all requests' drafts up to k, if there is any. seconds: what it took to make
        the drafts. Returns the lengths to keep [n], and the highest chance that was refused (0: none was).
        """
        offered = np.arange(chances.shape[1]) < lengths[:, None]
        if not self._adaptive or not offered.any():
            return lengths, 0.0
        falling = np.sort(chances[offered].astype(np.float64))[::-1]
        sizes = np.full(len(falling), chances.shape[1]) if padded else np.arange(1, len(falling) + 1) / batch
        bucket = self._bucket(batch)
        least = bucket.decide(falling, sizes, batch)
        kept = offered & (chances >= least)
        if not bucket.drafting:
            # Nor may drafts that are made in vain take much time.
            bucket.rest = int(seconds / (TRIALS * median(bucket.plain)))
        return kept.sum(axis=1), float(chances[offered & ~kept].max(initial=0.0))

    def observe(self, batch: int, drafted: int, expected: float, accepted: int, seconds: float) -> None:
        """Tell what a step brought.

        batch: requests that decoded in it. drafted: draft tokens that the engine computed for all of them. expected:
        sum of the chances of those that were drafts, of which `accepted` were right. seconds: wall time of the whole
        step, from one draft to the next. Steps that hold anything but decoding (prefill) must be left out.
        """
        if not self._adaptive:
            return
        bucket = self._bucket(batch)
        if not drafted:
            bucket.observe_plain(seconds)
        elif bucket.plain:
            bucket.observe_drafts(drafted / batch, expected, accepted, seconds)

    def _bucket(self, batch: int) -> _Bucket:
        """A size not seen before begins with the costs of the nearest one that was."""
        size = batch.bit_length()
        if size not in self._buckets:
            near = min(self._buckets, key=lambda known: abs(known - size), default=None)
            self._buckets[size] = _Bucket(np.array(FIRST_COST) if near is None else self._buckets[near].cost)
        return self._buckets[size]
