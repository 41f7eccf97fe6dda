"""How likely a draft token must be for it to pay: the engine's step times decide.

A step that verifies d draft tokens a request takes (1 + price * d) times as long as one without drafts. The price is
near 0 while the device waits for memory and nears 1 once it computes. It depends on the device, the model, the context
and the batch, so it is measured, for each power of two of the batch size, by comparing steps without drafts and with
them. Drafting a token that is accepted with chance p makes more tokens a second if p exceeds the price times the gain
of such a step. Where drafts as a whole don't pay, all are off, and are tried again ever more rarely.
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import fmean, median

FIRST_PRICE = 0.5  # likely drafts pay at this one, and their steps teach the real one
STEPS = 4  # without drafts, and with them, that a measurement needs
PATIENCE = 32  # steps in which they may come by themselves; then they are made
LONGEST_PATIENCE = 512
FIRST_WEIGHT, MOST_WEIGHT = 0.1, 8.0  # of a price, in squares of the d that it was measured with
DECAY = 0.95  # of what earlier steps brought, each step
MARGIN = 1.1  # what hardly pays is not drafted
SLACK = 0.03  # nor are drafts whose gain is lost in the scatter of the measured times


@dataclass(slots=True)
class _Step:
    drafted: float  # tokens a request
    seconds: float


def _last() -> deque[_Step]:
    return deque(maxlen=3 * STEPS)


@dataclass
class _Bucket:
    """Batches of about the same size.

    drafted, accepted: tokens a request and step, lately. hits: the latter in steps with drafts alone, of which `tried`
    count. plain, drafting: steps without drafts and with them since the last measurement.
    """

    price: float
    weight: float = FIRST_WEIGHT
    drafted: float = 0.0
    accepted: float = 0.0
    hits: float = 0.0
    tried: int = 0
    cost: float | None = None  # by what share a step with drafts took longer, lately
    off: bool = False
    plain: deque[_Step] = field(default_factory=_last)
    drafting: deque[_Step] = field(default_factory=_last)
    waited: int = 0
    patience: int = PATIENCE

    @property
    def threshold(self) -> float:
        price = max(self.price, 0.0)
        paying = MARGIN * price * (1 + self.accepted) / (1 + price * self.drafted)
        if self.waited >= self.patience:
            return 1.0 if len(self.plain) < STEPS else min(paying, 1.0) / 2
        return 1.0 if self.off else min(paying, 1.0)

    def observe(self, drafted: float, accepted: float, seconds: float) -> None:
        self.drafted += (1 - DECAY) * (drafted - self.drafted)
        self.accepted += (1 - DECAY) * (accepted - self.accepted)
        if drafted:
            self.tried += 1
            self.hits += max(1 - DECAY, 1 / self.tried) * (accepted - self.hits)
        (self.drafting if drafted else self.plain).append(_Step(drafted, seconds))
        self.waited += 1
        if min(len(self.plain), len(self.drafting)) >= STEPS:
            self._measure()
        elif self.waited < self.patience + 3 * STEPS:
            return
        forced = self.waited > self.patience
        self.waited = 0
        if forced or self.off:
            self.patience = min(2 * self.patience, LONGEST_PATIENCE)

    def _measure(self) -> None:
        # Medians, because single steps are held up by other things.
        plain = median(step.seconds for step in self.plain)
        cost = median(step.seconds for step in self.drafting) / plain - 1
        drafted = fmean(step.drafted for step in self.drafting)
        self.weight = min(self.weight + drafted**2, MOST_WEIGHT)
        self.price += min(drafted**2 / self.weight, 1.0) * (min(max(cost / drafted, -1.0), 3.0) - self.price)
        self.cost = cost if self.cost is None else (self.cost + cost) / 2
        self.off = self.hits < self.cost + SLACK
        if self.off:
            self.tried = 0  # what the next trial brings decides alone
        self.plain.clear()
        self.drafting.clear()


class Gate:
    """The least chance of acceptance that a draft token must have in the next step, from 0 (all do) to 1 (none).

    batch_limit: larger batches are never drafted for, -1 for no limit. adaptive: follow the measured price; else 0.
    """

    def __init__(self, batch_limit: int = -1, adaptive: bool = True):
        self._batch_limit = batch_limit
        self._adaptive = adaptive
        self._buckets: dict[int, _Bucket] = {}

    def threshold(self, batch: int) -> float:
        """For a step of `batch` requests."""
        if 0 <= self._batch_limit < batch:
            return 1.0
        return self._bucket(batch).threshold if self._adaptive else 0.0

    def observe(self, batch: int, drafted: int, accepted: int, seconds: float) -> None:
        """Tell what a step brought.

        batch: requests that decoded in it. drafted, accepted: draft tokens of all of them. seconds: wall time of the
        whole step, from one draft to the next. Steps that hold anything but decoding (prefill) must be left out.
        """
        if self._adaptive:
            self._bucket(batch).observe(drafted / batch, accepted / batch, seconds)

    def _bucket(self, batch: int) -> _Bucket:
        """A size not seen before begins with the price of the nearest one that was."""
        size = batch.bit_length()
        if size not in self._buckets:
            near = min(self._buckets, key=lambda known: abs(known - size), default=None)
            self._buckets[size] = _Bucket(FIRST_PRICE if near is None else self._buckets[near].price)
        return self._buckets[size]
