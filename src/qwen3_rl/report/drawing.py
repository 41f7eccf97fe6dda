"""Curves and bars: what curves.png of one run, of a comparison, and the HTML page share."""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path

# Told apart with every kind of colour vision (Okabe and Ito), in line and in dash.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
DASHES = ((), (6, 3), (2, 2), (8, 3, 2, 3), (1, 3), (10, 4))
# The parts of a step, in their order, "other" last.
PART_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f", "#bab0ac")

MOST_POINTS = 1000  # of a curve, where it is drawn or listed


def smooth(values: Sequence[float]) -> list[float]:
    """A moving average centred on each value, over a tenth of the curve; what is not finite is left out of it."""
    half = max(1, len(values) // 20)
    finite = [math.isfinite(value) for value in values]
    sums = list(accumulate((value if ok else 0.0 for value, ok in zip(values, finite, strict=True)), initial=0.0))
    counts = list(accumulate(finite, initial=0))
    result = []
    for index, ok in enumerate(finite):
        # As far to one side as to the other, so that the ends are not pulled inwards.
        reach = min(half, index, len(values) - 1 - index)
        start, end = index - reach, index + reach + 1
        result.append((sums[end] - sums[start]) / (counts[end] - counts[start]) if ok else math.nan)
    return result


def drawn(curve: dict[int, float]) -> tuple[list[int], list[float], list[float]]:
    """(steps, values, smoothed values) of a curve as it is drawn: at most MOST_POINTS, NaN where not finite."""
    values = [value if math.isfinite(value) else math.nan for value in curve.values()]
    return thin(list(curve)), thin(values), thin(smooth(values))


def thin(points: list) -> list:
    """At most MOST_POINTS of the points, evenly, both ends among them."""
    if len(points) <= MOST_POINTS:
        return points
    stride = (len(points) - 1) / (MOST_POINTS - 1)
    return [points[round(index * stride)] for index in range(MOST_POINTS)]


def part_colours(parts: Sequence[dict[str, float]]) -> dict[str, str]:
    """A colour for each part of a step that any run has, "other" last."""
    labels = list(dict.fromkeys(label for run in parts for label in run))
    parted = [label for label in labels if label != "other"]
    colours = {label: PART_COLOURS[index % (len(PART_COLOURS) - 1)] for index, label in enumerate(parted)}
    return colours | {label: PART_COLOURS[-1] for label in labels if label == "other"}


def save_figure(path: Path, rows: int, columns: int, size: tuple[float, float], fill: Callable) -> None:
    """A PNG of rows x columns axes over the training step; ``fill(figure, axes)`` draws into them."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(rows, columns, squeeze=False, figsize=size, layout="constrained")
    try:
        fill(figure, list(axes.flat))
        figure.savefig(path, dpi=120)
    finally:
        pyplot.close(figure)


def style_curve(axis, label: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_ylabel(label)
    axis.grid(alpha=0.3)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def plain(text: str) -> str:
    """A name for matplotlib to show as it is: no mathematics between dollars, no leading underscore, which hides it."""
    return f" {text}".replace("$", r"\$")
