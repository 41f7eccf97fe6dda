"""curves.png of a comparison: every curve of every run, and what a step is made of."""

import math
from pathlib import Path

from qwen3_rl.report.comparison import Comparison
from qwen3_rl.report.drawing import COLOURS, DASHES, drawn, part_colours, plain, save_figure, style_curve
from qwen3_rl.report.names import CURVES

COLUMNS = 3


def write_curves(comparison: Comparison, path: Path) -> None:
    metrics = [metric for metric in CURVES if any(comparison.chosen[metric])]
    rows = math.ceil((len(metrics) + 1) / COLUMNS)

    def fill(figure, axes) -> None:
        for axis, metric in zip(axes, metrics, strict=False):
            for run in range(len(comparison.runs)):
                steps, values, smoothed = drawn(comparison.curve(metric, run))
                style = {"color": COLOURS[run], "marker": "o" if len(values) < 30 else ""}
                axis.plot(steps, values, alpha=0.3, linewidth=1, markersize=2, **style)
                dashes = (0, DASHES[run] or (1, 0))
                axis.plot(steps, smoothed, color=COLOURS[run], linestyle=dashes, linewidth=1.8)
            style_curve(axis, f"{metric.label} ({metric.unit})" if metric.unit else metric.label)
        _bars(axes[len(metrics)], comparison)
        for axis in axes[len(metrics) + 1 :]:
            axis.set_axis_off()
        handles = [axes[0].plot([], [], color=COLOURS[run], linewidth=2)[0] for run in range(len(comparison.runs))]
        labels = [plain(label) for label in comparison.labels]
        figure.legend(handles, labels, loc="outside upper center", ncols=min(3, len(labels)), frameon=False)

    save_figure(path, rows, COLUMNS, (5 * COLUMNS, 3.2 * rows + 0.5), fill)


def _bars(axis, comparison: Comparison) -> None:
    """Mean seconds of each part of a step, one bar a run, its name above it."""
    colours = part_colours(comparison.parts)
    for run, (label, parts) in enumerate(zip(comparison.labels, comparison.parts, strict=True)):
        axis.text(0, run - 0.3, plain(label)[:40], fontsize="small", va="bottom")
        left = 0.0
        for part, seconds in parts.items():
            axis.barh(run, seconds, height=0.5, left=left, color=colours[part], label=part)
            left += seconds
    axis.set_yticks([])
    axis.set_ylim(len(comparison.runs) - 0.6, -0.8)
    axis.set_xlabel("seconds a step (mean)")
    unique = dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    if unique:
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "ncols": 3}
        axis.legend(unique.values(), unique.keys(), fontsize="x-small", frameon=False, **place)
