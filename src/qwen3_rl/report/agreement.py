"""Numerical agreement of a curve between two runs, as a relative error with a verdict."""

import math
from dataclasses import dataclass
from statistics import fmean

from qwen3_rl.report.names import Metric

TOLERANCE = 0.02  # mean relative error: the usual bar for NPU against GPU


@dataclass(frozen=True)
class Agreement:
    """How far a curve of ``run`` is from the base's. error: the mean relative error over the common steps, or None.

    measure: "step by step" (mean of |run - base| / |base|), or "whole curve" (sum of |run - base| over sum of |base|)
    for a curve of the base that touches or crosses zero, where the former means nothing.
    """

    metric: Metric
    run: str
    steps: int
    error: float | None
    worst: float | None
    measure: str
    verdict: str


def agree(metric: Metric, base: dict[int, float], other: dict[int, float], label: str, tolerance: float) -> Agreement:
    """Compare the curve {step: value} of the run ``label`` with the base's, over all common steps, warm-up included."""
    if not (base and other):
        return Agreement(metric, label, 0, None, None, "", "not logged by both")
    pairs = [(base[step], other[step]) for step in base if step in other]
    if not pairs:
        return Agreement(metric, label, 0, None, None, "", "no step in common")
    odd = sum(not (math.isfinite(one) and math.isfinite(two)) for one, two in pairs)
    if odd:
        return Agreement(metric, label, len(pairs), None, None, "", f"differs: NaN or infinite in {odd} steps")
    error, worst, measure = relative_error(pairs)
    return Agreement(metric, label, len(pairs), error, worst, measure, "agrees" if error <= tolerance else "differs")


def relative_error(pairs: list[tuple[float, float]]) -> tuple[float, float, str]:
    """(mean, worst, measure) of finite (expected, actual) pairs; infinite if only expected is zero throughout."""
    apart = [abs(one - two) for one, two in pairs]
    if min(one for one, _ in pairs) > 0 or max(one for one, _ in pairs) < 0:
        errors = [gap / abs(one) for gap, (one, _) in zip(apart, pairs, strict=True)]
        return fmean(errors), max(errors), "step by step"
    size = sum(abs(one) for one, _ in pairs)
    if not any(apart):
        return 0.0, 0.0, "whole curve"
    if not size:
        return math.inf, math.inf, "whole curve"
    return sum(apart) / size, max(apart) * len(pairs) / size, "whole curve"
