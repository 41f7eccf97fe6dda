"""What is known of each dataset row's response lengths: 12 bytes a row, numpy only."""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np


@dataclass(frozen=True)
class GroupMoments:
    """Moments of the log lengths of each row's siblings in one batch.

    rows: int64 [g], ascending; mean, spread: float64 [g]; longest: int64 [g], tokens; counts: int64 [g].
    """

    rows: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    longest: np.ndarray
    counts: np.ndarray


def group_moments(row_ids: np.ndarray, lengths: np.ndarray) -> GroupMoments:
    """Moments per row of ``lengths`` (tokens, [m]) with ``row_ids`` ([m]). Any order of the same siblings gives the
    same bits: they are summed in the order of their lengths."""
    sequence = np.lexsort((lengths, row_ids))
    row_ids, lengths = row_ids[sequence], lengths[sequence]
    rows, starts, counts = np.unique(row_ids, return_index=True, return_counts=True)
    logs = np.log(np.maximum(lengths, 1))
    mean = np.add.reduceat(logs, starts) / counts
    squares = np.add.reduceat((logs - np.repeat(mean, counts)) ** 2, starts)
    spread = np.sqrt(squares / np.maximum(counts - 1, 1))
    return GroupMoments(rows, mean, spread, lengths[starts + counts - 1], counts)


class LengthStatistics:
    """Running estimates of every row's response length.

    A row's siblings are taken as lognormal. ``mean`` and ``spread`` are exponential moving averages of the mean and the
    standard deviation of their log lengths: new = ema_decay * old + (1 - ema_decay) * observed, the first observation
    whole. From both follows how long the longest of n siblings will be, which is what a batch waits for; the largest
    length seen is a much noisier estimate of it.
    """

    FIELDS = ("mean", "spread", "updates")

    def __init__(self, rows: int, ema_decay: float):
        self.ema_decay = ema_decay
        self.mean = np.zeros(rows, np.float32)
        self.spread = np.zeros(rows, np.float32)
        self.updates = np.zeros(rows, np.int32)
        self.siblings = 1

    def update(self, moments: GroupMoments, capped_from: int | None = None) -> None:
        """Take in one batch. Where a row has a response of ``capped_from`` tokens or more, its lengths are only known
        to be at least what was observed: such an observation raises estimates and never lowers them."""
        rows = moments.rows
        first = self.updates[rows] == 0
        weight = np.where(first, 1.0, 1.0 - self.ema_decay)
        censored = ~first & (moments.longest >= (np.inf if capped_from is None else capped_from))
        for values, observed in ((self.mean, moments.mean), (self.spread, moments.spread)):
            old = values[rows]
            new = old + weight * (observed - old)
            values[rows] = np.where(censored, np.maximum(old, new), new)
        self.updates[rows] += 1
        self.siblings = max(self.siblings, int(moments.counts.max(initial=1)))

    def seen(self, rows=slice(None)) -> np.ndarray:
        """bool [k]: which of ``rows`` (all, if not given) have been observed."""
        return self.updates[rows] > 0

    def never_seen(self) -> int:
        return int(np.count_nonzero(self.updates == 0))

    def typical(self, rows=slice(None)) -> np.ndarray:
        """float64 [k], tokens: the geometric mean length; meaningless for rows never seen, as longest() is."""
        return np.exp(self.mean[rows].astype(np.float64))

    def longest(self, rows=slice(None)) -> np.ndarray:
        """float64 [k], tokens: how long the longest of the siblings will be."""
        return np.exp(self.mean[rows] + _largest_of(self.siblings) * self.spread[rows].astype(np.float64))

    def state(self) -> dict:
        """Copies of all that update() changes."""
        return {name: getattr(self, name).copy() for name in self.FIELDS} | {"siblings": self.siblings}

    def load(self, state: dict) -> None:
        for name in self.FIELDS:
            getattr(self, name)[:] = state[name]
        self.siblings = state["siblings"]


def _largest_of(n: int) -> float:
    """The expected largest of n standard normal values (Blom's approximation); 0 for one."""
    return NormalDist().inv_cdf((n - 0.375) / (n + 0.25))
