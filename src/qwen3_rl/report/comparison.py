"""What a comparison of runs says: medians and ratios, the split of a step, the agreement of curves."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import quantiles

from qwen3_rl.errors import UserError
from qwen3_rl.report import names
from qwen3_rl.report.agreement import TOLERANCE, Agreement, agree
from qwen3_rl.report.comparable import not_comparable, said
from qwen3_rl.report.names import Metric
from qwen3_rl.report.sources import Run


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of the finite values of ``count`` steps; ``bad`` steps were NaN or infinite."""

    median: float
    low: float
    high: float
    count: int
    bad: int


@dataclass(frozen=True)
class Row:
    """A metric over the compared steps, one entry a run; None where the run has it not. ratios: to the base run.

    For times and rates a ratio above 1 means better than the base; for the rest it is the run's median over the base's.
    """

    metric: Metric
    spreads: list[Spread | None]
    ratios: list[float | None]


@dataclass(frozen=True)
class Comparison:
    runs: list[Run]
    base: int
    warmup: int
    tolerance: float
    steps: list[list[int]]  # those compared, one list a run
    rows: list[Row]
    parts: list[dict[str, float]]  # mean seconds of each part of a step, one dict a run
    agreement: list[Agreement]
    warnings: list[str]
    chosen: dict[Metric, list[str | None]]  # the name under which each run has a metric

    def curve(self, metric: Metric, run: int) -> dict[int, float]:
        """{step: value} over all steps of the run, the warm-up included; empty where the run has it not."""
        return _series(self.runs[run], self.chosen[metric][run])

    @property
    def labels(self) -> list[str]:
        return [run.label for run in self.runs]


def compare(runs: list[Run], base: int = 0, warmup: int = 1, tolerance: float = TOLERANCE) -> Comparison:
    """Compare the runs over the steps that all of them have, the first ``warmup`` of each run left out."""
    warnings = [f"{run.label}: {note}" for run in runs for note in run.notes]
    steps = _compared_steps(runs, warmup, warnings)
    chosen = {metric: choose(metric, runs) for metric in names.METRICS}
    warnings += _other_names(runs, chosen)
    rows = [_row(metric, chosen[metric], runs, steps, base) for metric in names.TABLE]
    return Comparison(
        runs,
        base,
        warmup,
        tolerance,
        steps,
        [row for row in rows if any(row.spreads)],
        [_parts(run, kept) for run, kept in zip(runs, steps, strict=True)],
        _agreement(runs, chosen, base, tolerance),
        [*warnings, *not_comparable(runs, steps)],
        chosen,
    )


def _compared_steps(runs: list[Run], warmup: int, warnings: list[str]) -> list[list[int]]:
    kept = [run.steps.training()[warmup:] for run in runs]
    for run, steps in zip(runs, kept, strict=True):
        if not steps:
            have = f"{run.label} has {len(run.steps.training())} steps"
            raise UserError(f"{have}, and {warmup} are left out as warm-up", "give a lower --warmup")
    common = sorted(set(kept[0]).intersection(*kept[1:]))
    if not common:
        warnings.append("the runs have no step in common: each is summed up over its own steps")
        return kept
    if any(steps != common for steps in kept):
        have = ", ".join(f"{run.label} {span(run.steps.training())}" for run in runs)
        warnings.append(f"not the same steps ({have}): only {span(common)} are compared")
    return [common] * len(runs)


def span(steps: list[int]) -> str:
    return f"{steps[0]}-{steps[-1]} ({len(steps)} steps)"


def choose(metric: Metric, runs: list[Run]) -> list[str | None]:
    """The name under which each run has the metric: one that all have, else each run's own first."""
    have = [[name for name in metric.names if run.steps.has(name)] for run in runs]
    shared = next((name for name in metric.names if all(name in mine for mine in have)), None)
    return [shared or (mine[0] if mine else None) for mine in have]


def _other_names(runs: list[Run], chosen: dict[Metric, list[str | None]]) -> Iterable[str]:
    for metric, found in chosen.items():
        if len({name for name in found if name}) > 1:
            yield f"{metric.label} is measured differently: {said(runs, found)}"


def summarise(values: list[float]) -> Spread | None:
    finite = [value for value in values if math.isfinite(value)]
    bad = len(values) - len(finite)
    if not finite:
        return Spread(math.nan, math.nan, math.nan, 0, bad) if bad else None
    low, middle, high = quantiles(finite, n=4, method="inclusive") if len(finite) > 1 else finite * 3
    return Spread(middle, low, high, len(finite), bad)


def _row(metric: Metric, found: list[str | None], runs: list[Run], steps: list[list[int]], base: int) -> Row:
    spreads = []
    for run, name, kept in zip(runs, found, steps, strict=True):
        series = _series(run, name)
        spreads.append(summarise([series[step] for step in kept if step in series]))
    return Row(metric, spreads, [_ratio(metric, spread, spreads[base]) for spread in spreads])


def _ratio(metric: Metric, spread: Spread | None, base: Spread | None) -> float | None:
    if spread is None or base is None:
        return None
    over, under = (base.median, spread.median) if metric.better == "less" else (spread.median, base.median)
    ratio = over / under if under else math.nan
    return ratio if math.isfinite(ratio) else None


def _series(run: Run, name: str | None) -> dict[int, float]:
    return run.steps.series(name) if name else {}


def _agreement(runs: list[Run], chosen: dict[Metric, list[str | None]], base: int, tolerance: float) -> list[Agreement]:
    found = []
    for metric in names.AGREEMENT:
        curves = [_series(run, name) for run, name in zip(runs, chosen[metric], strict=True)]
        others = [index for index in range(len(runs)) if index != base]
        found += [agree(metric, curves[base], curves[index], runs[index].label, tolerance) for index in others]
    return found


def _parts(run: Run, steps: list[int]) -> dict[str, float]:
    """Mean seconds of the parts of a step over ``steps``; "other" is what they leave of the step."""

    def seconds(metric: Metric) -> float:
        series = _series(run, *choose(metric, [run]))
        return sum(value for step in steps if math.isfinite(value := series.get(step, 0))) / len(steps)

    parts = {part.label: mean for part in names.PARTS if (mean := seconds(part)) > 0}
    step = seconds(names.STEP)
    rest = step - sum(parts.values())
    return parts | ({"other": rest} if rest > 1e-6 * step else {})
