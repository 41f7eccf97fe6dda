"""What a run logged, one record a training step: validation joined, restarts resolved."""

import math
from array import array
from collections.abc import Iterator

from qwen3_rl.report.names import KEPT, RATE, STEP, TOKENS, is_training

LARGEST = 1e100  # of a metric; beyond it is as good as infinite, and sums overflow


class Steps:
    """Takes records in the order in which they were logged.

    Records of one step (training, then validation) are merged. A training step that comes again with other values is a
    run that restarted from a checkpoint: it replaces the earlier one and everything after it.
    """

    def __init__(self) -> None:
        self._records: dict[int, dict] = {}
        self._last: int | None = None
        self.restarts = 0

    def _get(self, step: int) -> dict:
        return self._records.get(step, {})

    def _put(self, step: int, data: dict) -> None:
        self._records[step] = data

    def add(self, step: int, data: dict) -> None:
        if is_training(data):
            if self._last is not None and step <= self._last:
                before = self._get(step)
                if all(same(before.get(name), value) for name, value in data.items()):
                    return  # the same line once more
                self.restarts += 1
                while self._records and next(reversed(self._records)) >= step:
                    self._records.popitem()
            self._last = step
        self._put(step, {**self._get(step), **data})

    def all(self) -> Iterator[tuple[int, dict]]:
        """Every step in order, those with a validation alone too."""
        for step in sorted(self._records):
            yield step, self._get(step)


class KeptSteps(Steps):
    """The metrics that a comparison needs (names.KEPT) as floats, in little memory: a long log has 100,000 steps."""

    def __init__(self) -> None:
        super().__init__()
        self._layouts: dict[tuple[str, ...], int] = {}  # the names of a record, and their number
        self._names: list[tuple[str, ...]] = [()]

    def add(self, step: int, data: dict[str, float]) -> None:
        super().add(step, {name: math.copysign(math.inf, n) if abs(n) > LARGEST else n for name, n in data.items()})

    def _get(self, step: int) -> dict:
        layout, values = self._records.get(step, (0, ()))
        return dict(zip(self._names[layout], values, strict=True))

    def _put(self, step: int, data: dict) -> None:
        kept = {name: value for name, value in data.items() if name in KEPT}
        names = tuple(kept)
        if names not in self._layouts:
            self._layouts[names] = len(self._names)
            self._names.append(names)
        self._records[step] = (self._layouts[names], array("d", kept.values()))

    def training(self) -> list[int]:
        trained = [is_training(names) for names in self._names]
        return sorted(step for step, (layout, _) in self._records.items() if trained[layout])

    def has(self, name: str) -> bool:
        """Does a training step have ``name``?"""
        return bool(self.series(name)) if name == RATE.key else any(name in n and is_training(n) for n in self._names)

    def series(self, name: str) -> dict[int, float]:
        """{step: value} of the training steps that have ``name``, in order; NaN and infinities included."""
        if name == RATE.key:
            rates = ((step, _rate(self._get(step))) for step in self.training())
            return {step: rate for step, rate in rates if rate is not None}
        at = [names.index(name) if is_training(names) and name in names else None for names in self._names]
        steps = sorted(step for step, (layout, _) in self._records.items() if at[layout] is not None)
        return {step: values[at[layout]] for step in steps for layout, values in (self._records[step],)}


def _rate(record: dict) -> float | None:
    """Tokens a second over all devices."""
    seconds = next((record[name] for name in STEP.names if name in record), 0)
    return record[TOKENS] / seconds if TOKENS in record and seconds > 0 else None


def same(one: float | None, other: float | None) -> bool:
    return one == other or (one != one and other != other)  # NaN is NaN
