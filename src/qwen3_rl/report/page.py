"""report.html: the comparison as one page without any network access. Curves are SVG made here; a short script in
page.html hides runs and reads values off."""

import json
import math
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template

from qwen3_rl.report.comparison import Comparison
from qwen3_rl.report.drawing import COLOURS, DASHES, drawn, part_colours
from qwen3_rl.report.names import CURVES, Metric
from qwen3_rl.report.writers import Grid, explanation, finite, grids, headline, short

WIDTH, HEIGHT = 420, 220
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 10, 24

Drawn = tuple[list[int], list[float], list[float]]


def html(comparison: Comparison) -> str:
    metrics = [metric for metric in CURVES if any(comparison.chosen[metric])]
    curves = {m: [drawn(comparison.curve(m, run)) for run in range(len(comparison.runs))] for m in metrics}
    ratios, parts, *others = grids(comparison)
    data = {"runs": comparison.labels, "charts": [_chart_data(curves[metric]) for metric in metrics]}
    return Template(files(__package__).joinpath("page.html").read_text(encoding="utf-8")).substitute(
        intro="".join(f"<p>{escape(line)}</p>" for line in [*headline(comparison), explanation(comparison)]),
        warnings=_warnings(comparison.warnings),
        ratios=_table(ratios),
        controls="\n".join(_control(run, label) for run, label in enumerate(comparison.labels)),
        charts="\n".join(_figure(metric, curves[metric]) for metric in metrics),
        bars=_bars(comparison),
        tables="\n".join(map(_table, [parts, *others])),
        # "</script>" and "<!--" in a name would end or change the element.
        data=json.dumps(data, allow_nan=False).replace("<", "\\u003c"),
    )


def _warnings(warnings: list[str]) -> str:
    items = "".join(f"<li>{escape(warning)}</li>" for warning in warnings)
    return f'<div class="warnings"><ul>{items}</ul></div>' if items else ""


def _table(grid: Grid) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in grid.head)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in grid.rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<h2>{escape(grid.title)}</h2><div class="scroll">{table}</div>'


def _control(run: int, label: str) -> str:
    line = f'<svg viewBox="0 0 28 8"><path d="M1,4 H27" stroke="{COLOURS[run]}" stroke-width="3"{_dashes(run)}/></svg>'
    name = f'<span class="name" title="{escape(label)}">{escape(label)}</span>'
    return f'<label><input type="checkbox" data-run="{run}" checked>{line}{name}</label>'


def _dashes(run: int) -> str:
    return f' stroke-dasharray="{" ".join(map(str, DASHES[run]))}"' if DASHES[run] else ""


def _first_and_last(curves: list[Drawn]) -> tuple[int, int]:
    steps = [step for curve in curves for step in curve[0]]
    return min(steps), max(steps)


def _chart_data(curves: list[Drawn]) -> dict:
    first, last = _first_and_last(curves)
    return {
        "first": first,
        "last": last,
        "left": LEFT,
        "width": WIDTH - LEFT - RIGHT,
        "curves": [[[s, finite(v)] for s, v in zip(steps, values, strict=True)] for steps, values, _ in curves],
    }


def _figure(metric: Metric, curves: list[Drawn]) -> str:
    title = f"{metric.label}, {metric.unit}" if metric.unit else metric.label
    first, last = _first_and_last(curves)
    low, high = _range([value for curve in curves for value in curve[1] if math.isfinite(value)])

    def across(step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (step - first) / max(1, last - first)

    def down(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low)

    lines = []
    for value in ticks(low, high, 5):
        y = f"{down(value):.1f}"
        lines.append(f'<path class="grid" d="M{LEFT},{y} H{WIDTH - RIGHT}"/>')
        lines.append(f'<text x="{LEFT - 5}" y="{y}" dy=".35em" text-anchor="end">{short(value)}</text>')
    for step in ticks(first, last, 6):
        if step == round(step):
            lines.append(f'<text x="{across(step):.1f}" y="{HEIGHT - 7}" text-anchor="middle">{step:.0f}</text>')
    for run, (steps, values, smoothed) in enumerate(curves):
        for kind, heights in (("raw", values), ("smooth", smoothed)):
            path = " ".join(_path([(across(x), down(y)) for x, y in zip(steps, heights, strict=True)]))
            dashes = _dashes(run) if kind == "smooth" else ""
            lines.append(f'<path class="{kind} run{run}" stroke="{COLOURS[run]}"{dashes} d="{path}"/>')
    lines.append(f'<line class="cursor" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    bad = sum(not math.isfinite(value) for curve in curves for value in curve[1])
    note = f" ({bad} values not finite)" if bad else ""
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(lines)}</svg>'
    caption = f"<figcaption>{escape(title)}{note}</figcaption>"
    return f'<figure>{caption}{svg}<div class="readout"></div></figure>'


def _path(points: Sequence[tuple[float, float]]):
    """SVG path commands; a point that is not finite breaks the line, and one alone is a dot."""
    pen = "M"
    for (x, y), (_, following) in zip(points, [*points[1:], (0, math.nan)], strict=False):
        if not math.isfinite(y):
            pen = "M"
            continue
        yield f"{pen}{x:.1f},{y:.1f}"
        if pen == "M" and not math.isfinite(following):
            yield "h0"
        pen = "L"


def _range(values: list[float]) -> tuple[float, float]:
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return low - margin, high + margin


def ticks(low: float, high: float, most: int) -> list[float]:
    """At most about ``most`` round numbers between low and high."""
    if high <= low:
        return [low]
    rough = (high - low) / most
    unit = 10.0 ** math.floor(math.log10(rough))
    size = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    return [index * size for index in range(math.ceil(low / size), math.floor(high / size) + 1)]


def _bars(comparison: Comparison) -> str:
    """What a step is made of: one bar a run, all to one scale."""
    colours = part_colours(comparison.parts)
    longest = max((sum(parts.values()) for parts in comparison.parts), default=0) or 1
    bars = []
    for label, parts in zip(comparison.labels, comparison.parts, strict=True):
        spans = "".join(
            f'<span style="width:{100 * seconds / longest:.2f}%;background:{colours[part]}" '
            f'title="{escape(part)} {short(seconds)} s"></span>'
            for part, seconds in parts.items()
        )
        total = short(sum(parts.values()))
        bars.append(f'<div><div>{escape(label)}: {total} s</div><div class="bar">{spans}</div></div>')
    key = "".join(f'<span><i style="background:{c}"></i>{escape(part)}</span>' for part, c in colours.items())
    title = "<h2>What a step is made of (mean seconds)</h2>"
    return f'{title}<div class="bars">{"".join(bars)}</div><div class="key">{key}</div>'
