"""How many tokens a request may draft, by what that has brought lately: the engine's tokens a second decide.

A verified draft token is nearly free while the device waits for memory and costs as much as any other once it computes.
Where that turns depends on the device, the model, the context and the batch, and the acceptance moves with the policy;
so nothing is modelled. For each power of two of the batch size one level of drafting holds, and now and then another is
tried for a few steps. A trial is compared with the steps just before it, so that a batch that shrinks or a machine that
slows down does not look like the level's doing.
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import fmean, median

TRIAL = 6  # steps
GLANCE = 2  # steps after which a trial that is far worse ends
FAR_WORSE = 0.8
WINDOW = 32  # steps of the level that holds, which a trial is compared with
FIRST_WAIT, SHORTEST_WAIT, LONGEST_WAIT = 4, 32, 1024  # steps between trials
BUDGET = 0.01  # the share of the time that trials may cost
MARGIN = 1.02  # a trial must be this much better: noise alone must not move the level


@dataclass(frozen=True)
class _Step:
    tokens: int
    seconds: float


def _rate(steps: "deque[_Step]") -> float:
    """Tokens a second. The median, because single steps are held up by other things."""
    return fmean(step.tokens for step in steps) / median(step.seconds for step in steps)


@dataclass
class _Bucket:
    """Batches of about the same size: the level that holds, and the one on trial."""

    level: int
    steps: deque[_Step] = field(default_factory=lambda: deque(maxlen=WINDOW))
    wait: int = FIRST_WAIT
    trial: int | None = None
    trial_steps: deque[_Step] = field(default_factory=lambda: deque(maxlen=WINDOW))
    trials: int = 0


class Gate:
    """Draft tokens a request may have in the next step, from 0 to k.

    k: the engine's number of speculative tokens. batch_limit: larger batches are never drafted for, -1 for no limit.
    adaptive: choose among 0, half of k and k by the measured rate; else always k.
    """

    def __init__(self, k: int, batch_limit: int = -1, adaptive: bool = True):
        self._k = k
        self._batch_limit = batch_limit
        self._levels = sorted({0, (k + 1) // 2, k}) if adaptive else [k]
        self._buckets: dict[int, _Bucket] = {}
        self._last: _Bucket | None = None
        self.switches = 0

    def draft_tokens(self, batch: int) -> int:
        """How many tokens each of `batch` requests may draft for the next step."""
        self._last = None
        if 0 <= self._batch_limit < batch:
            return 0
        if len(self._levels) == 1:
            return self._k
        bucket = self._last = self._bucket(batch)
        return bucket.level if bucket.trial is None else bucket.trial

    def observe(self, batch: int, accepted: int, seconds: float) -> None:
        """Tell what the step brought that `draft_tokens` was asked for last.

        batch: requests that decoded in it. accepted: draft tokens accepted by all of them. seconds: wall time of the
        whole step, from one draft to the next. Steps that hold anything but decoding (prefill) must be left out.
        """
        if (bucket := self._last) is None:
            return
        self._last = None
        step = _Step(batch + accepted, seconds)
        if bucket.trial is not None:
            bucket.trial_steps.append(step)
            self._judge(bucket)
            return
        bucket.steps.append(step)
        bucket.wait -= 1
        if bucket.wait <= 0:
            others = [level for level in self._levels if level != bucket.level]
            bucket.trial = others[bucket.trials % len(others)]
            bucket.trials += 1

    def _judge(self, bucket: _Bucket) -> None:
        done = len(bucket.trial_steps)
        gain = _rate(bucket.trial_steps) / _rate(bucket.steps)
        if done < TRIAL and not (done == GLANCE and gain < FAR_WORSE):
            return
        if gain > MARGIN:
            bucket.level, bucket.steps = bucket.trial, bucket.trial_steps
            bucket.wait = FIRST_WAIT
            self.switches += 1
        else:
            lost = done * (1 / gain - 1)  # in steps of the level that holds
            bucket.wait = int(min(max(lost / BUDGET, SHORTEST_WAIT), LONGEST_WAIT))
        bucket.trial, bucket.trial_steps = None, deque(maxlen=WINDOW)

    def _bucket(self, batch: int) -> _Bucket:
        """A size not seen before begins with the level of the nearest one that was; the first of all without drafts."""
        size = batch.bit_length()
        if size not in self._buckets:
            near = min(self._buckets, key=lambda known: abs(known - size), default=None)
            self._buckets[size] = _Bucket(0 if near is None else self._buckets[near].level)
        return self._buckets[size]
