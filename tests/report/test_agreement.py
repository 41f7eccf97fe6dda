"""Numerical agreement of curves."""

import math

import pytest

from qwen3_rl.report.agreement import agree
from qwen3_rl.report.names import REWARD


def verdict(base, other, tolerance=0.02):
    curves = [dict(enumerate(curve)) for curve in (base, other)]
    return agree(REWARD, *curves, "run", tolerance)


def test_mean_relative_error_step_by_step():
    found = verdict([1.0, 2.0, 4.0], [1.01, 2.04, 4.0])
    assert found.error == pytest.approx((0.01 + 0.02 + 0) / 3)
    assert found.worst == pytest.approx(0.02)
    assert (found.measure, found.verdict) == ("step by step", "agrees")


def test_the_tolerance_decides():
    assert verdict([1.0], [1.03]).verdict == "differs"
    assert verdict([1.0], [1.03], tolerance=0.05).verdict == "agrees"


def test_a_curve_through_zero_is_measured_as_a_whole():
    """Step by step, the step at zero alone would make the error infinite."""
    found = verdict([-1.0, 0.0, 1.0], [-1.0, 0.02, 1.0])
    assert found.error == pytest.approx(0.01)
    assert (found.measure, found.verdict) == ("whole curve", "agrees")


@pytest.mark.parametrize(
    ("base", "other", "error", "said"),
    [([0.0, 0.0], [0.0, 0.0], 0, "agrees"), ([0.0, 0.0], [0.0, 0.1], math.inf, "differs")],
)
def test_a_curve_that_is_zero(base, other, error, said):
    found = verdict(base, other)
    assert (found.error, found.verdict) == (error, said)


def test_not_finite_differs():
    assert verdict([1.0, math.nan], [1.0, 1.0]).verdict == "differs: NaN or infinite in 1 steps"


def test_nothing_to_compare():
    assert verdict([], [1.0]).verdict == "not logged by both"
    assert agree(REWARD, {1: 1.0}, {2: 1.0}, "run", 0.02).verdict == "no step in common"
