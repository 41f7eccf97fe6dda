"""A comparison as text: Markdown, CSV, JSON, and the same tables for the terminal."""

import csv
import io
import json
import math
import re
from dataclasses import dataclass

from qwen3_rl.report.comparable import settings_apart
from qwen3_rl.report.comparison import Comparison, Spread, span
from qwen3_rl.report.drawing import part_colours, thin

DASH = "-"
SETTINGS_SHOWN = 40


@dataclass(frozen=True)
class Grid:
    """A table of text cells, whatever it becomes."""

    title: str
    head: list[str]
    rows: list[list[str]]


def short(value: float | None) -> str:
    """Four significant digits."""
    if value is None or math.isnan(value):
        return DASH
    return f"{value:.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.4g}"


def spread_text(spread: Spread | None) -> str:
    if spread is None:
        return DASH
    bad = f", {spread.bad} not finite" if spread.bad else ""
    return f"{short(spread.median)} ({short(spread.low)}..{short(spread.high)}{bad})"


def grids(comparison: Comparison) -> list[Grid]:
    """The ratio table, the split of a step, the agreement, and the settings that differ."""
    labels, base = comparison.labels, comparison.base
    head = ["metric"]
    for run, label in enumerate(labels):
        head += [f"{label} (base)"] if run == base else [label, "ratio"]
    ratio_rows = []
    for row in comparison.rows:
        cells = [f"{row.metric.label}, {row.metric.unit}" if row.metric.unit else row.metric.label]
        for run, (spread, ratio) in enumerate(zip(row.spreads, row.ratios, strict=True)):
            cells.append(spread_text(spread))
            if run != base:
                cells.append(DASH if ratio is None else f"{ratio:.2f}x")
        ratio_rows.append(cells)
    parts = part_colours(comparison.parts)
    found = [
        Grid(f"Ratios to {labels[base]}", head, ratio_rows),
        Grid(
            "Seconds of a step (mean)",
            ["part", *labels],
            [[part, *(short(run.get(part)) for run in comparison.parts)] for part in parts],
        ),
        Grid(
            f"Agreement with {labels[base]}: at most {100 * comparison.tolerance:.3g}% mean relative error",
            ["metric", "run", "steps", "mean error", "worst step", "measure", "verdict"],
            [
                [
                    one.metric.label,
                    one.run,
                    str(one.steps),
                    percent(one.error),
                    percent(one.worst),
                    one.measure,
                    one.verdict,
                ]
                for one in comparison.agreement
            ],
        ),
    ]
    apart = settings_apart(comparison.runs)
    if apart:
        rows = [[name, *(clip(value) for value in values)] for name, values in list(apart.items())[:SETTINGS_SHOWN]]
        more = f", the first {SETTINGS_SHOWN} of {len(apart)}" if len(apart) > SETTINGS_SHOWN else ""
        found.append(Grid(f"Settings that differ{more}", ["setting", *labels], rows))
    return found


def percent(share: float | None) -> str:
    return DASH if share is None else f"{share:.2%}"


def clip(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def explanation(comparison: Comparison) -> str:
    which = span(comparison.steps[comparison.base])
    left_out = f"the first {comparison.warmup} of each run left out as warm-up"
    return (
        f"Medians (quartiles) over steps {which}, {left_out}. A ratio above 1 is better than the base "
        "for times and rates; elsewhere it is the run over the base."
    )


def headline(comparison: Comparison) -> list[str]:
    """One sentence a run: end to end, generation, actor update and step against the base."""
    shown = ("end to end", "generation", "actor update", "step")
    base = comparison.labels[comparison.base]
    lines = []
    for run, label in enumerate(comparison.labels):
        ratios = {row.metric.label: row.ratios[run] for row in comparison.rows}
        said = [f"{name} {ratios[name]:.2f}x" for name in shown if ratios.get(name) is not None]
        if run != comparison.base and said:
            lines.append(f"{label} against {base}: {', '.join(said)}")
    return lines


def markdown(comparison: Comparison) -> str:
    parts = ["# Comparison of runs", explanation(comparison), *map(escape, headline(comparison))]
    if comparison.warnings:
        parts.append("\n".join(f"- warning: {escape(warning)}" for warning in comparison.warnings))
    for grid in grids(comparison):
        rows = [grid.head, ["---"] * len(grid.head), *grid.rows]
        parts.append(f"## {escape(grid.title)}")
        parts.append("\n".join(f"| {' | '.join(escape(cell) for cell in row)} |" for row in rows))
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Shown as it is in Markdown: no HTML, no cell borders, no line breaks, no emphasis."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", " ".join(text.split()))


def csv_text(comparison: Comparison) -> str:
    """One line for each metric and run."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["metric", "unit", "run", "median", "quartile_1", "quartile_3", "steps", "not_finite", "ratio"])
    for row in comparison.rows:
        for label, spread, ratio in zip(comparison.labels, row.spreads, row.ratios, strict=True):
            if spread:
                numbers = [spread.median, spread.low, spread.high, spread.count, spread.bad, ratio]
                writer.writerow([row.metric.key, row.metric.unit, label, *("" if n is None else n for n in numbers)])
    return text.getvalue()


def json_text(comparison: Comparison) -> str:
    """Everything, the curves too (at most drawing.MOST_POINTS of each); what is not finite is null."""
    runs = [
        {
            "label": run.label,
            "path": str(run.path),
            "versions": run.versions,
            "steps": len(run.steps.training()),
            "compared": span(comparison.steps[index]),
            "parts_s": comparison.parts[index],
            "curves": {
                metric.key: [[step, finite(value)] for step, value in thin([*comparison.curve(metric, index).items()])]
                for metric in comparison.chosen
                if comparison.chosen[metric][index]
            },
            "read_from": {m.key: used[index] for m, used in comparison.chosen.items() if used[index]},
        }
        for index, run in enumerate(comparison.runs)
    ]
    rows = {
        row.metric.key: [
            spread and {name: finite(value) for name, value in vars(spread).items()} | {"ratio": ratio}
            for spread, ratio in zip(row.spreads, row.ratios, strict=True)
        ]
        for row in comparison.rows
    }
    agreement = [
        {**vars(one), "metric": one.metric.key, "error": finite(one.error), "worst": finite(one.worst)}
        for one in comparison.agreement
    ]
    everything = {
        "base": comparison.labels[comparison.base],
        "warmup": comparison.warmup,
        "tolerance": comparison.tolerance,
        "warnings": comparison.warnings,
        "runs": runs,
        "metrics": rows,
        "agreement": agreement,
        "settings_that_differ": {name: [*map(str, values)] for name, values in settings_apart(comparison.runs).items()},
    }
    return json.dumps(everything, indent=1, allow_nan=False) + "\n"


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
