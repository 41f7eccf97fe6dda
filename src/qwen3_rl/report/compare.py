"""`qwen3-rl compare A B [C ...]`: runs against one another, as tables, curves and one page."""

import argparse
import sys
from collections import Counter
from pathlib import Path

from rich.table import Table
from rich.text import Text

from patchset.terminal import Terminal
from qwen3_rl.errors import UserError
from qwen3_rl.report import writers
from qwen3_rl.report.agreement import TOLERANCE
from qwen3_rl.report.comparison import Comparison, compare
from qwen3_rl.report.drawing import COLOURS
from qwen3_rl.report.sources import Run, read_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        type=Path,
        nargs="+",
        metavar="RUN",
        help="a console log of veRL (plain or gzip), a metrics jsonl, a TensorBoard folder, or an outputs/RUN folder",
    )
    parser.add_argument("--label", action="append", default=[], help="a run's name; once for each run, in their order")
    parser.add_argument("--base", help="the label of the run that the others are measured against (default: the first)")
    parser.add_argument("--warmup", type=int, default=1, metavar="N", help="steps left out at the start (default: 1)")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=TOLERANCE,
        metavar="SHARE",
        help=f"mean relative error at which curves still agree (default: {TOLERANCE})",
    )
    parser.add_argument(
        "--must-agree",
        action="store_true",
        help="exit with 1, and say why, unless all curves that agreement is "
        "measured by are logged by all runs and agree",
    )
    parser.add_argument(
        "--out", type=Path, help="write compare.md, compare.csv, compare.json, curves.png and report.html there"
    )


def run(args: argparse.Namespace) -> int:
    if not 2 <= len(args.runs) <= len(COLOURS):
        raise UserError(f"{len(args.runs)} runs given", f"name two to {len(COLOURS)}")
    if args.warmup < 0 or not args.tolerance > 0:
        raise UserError("--warmup is below 0, or --tolerance not above 0", "see qwen3-rl compare --help")
    runs = [read_run(path) for path in args.runs]
    set_labels(runs, args.label)
    comparison = compare(runs, base_index(runs, args.base), args.warmup, args.tolerance)
    show(comparison)
    if args.out:
        write(comparison, args.out)
    apart = [one for one in comparison.agreement if args.must_agree and one.verdict != "agrees"]
    for one in apart:
        print(f"--must-agree: {one.metric.label} of {one.run}: {one.verdict}", file=sys.stderr)
    return 1 if apart else 0


def set_labels(runs: list[Run], given: list[str]) -> None:
    """Given labels, else the names of the files, told apart by their folders where two are alike."""
    if given and len(given) != len(runs):
        raise UserError(f"{len(given)} labels for {len(runs)} runs", "give --label once for each run, or not at all")
    labels = [printable(label) for label in given or [run.label for run in runs]]
    if not given:
        labels = [printable(str(r.path)) if Counter(labels)[n] > 1 else n for r, n in zip(runs, labels, strict=True)]
        labels = [f"{n} #{i + 1}" if Counter(labels)[n] > 1 else n for i, n in enumerate(labels)]
    if len(set(labels)) < len(labels):
        raise UserError("two runs have the same label", "give each its own --label")
    for one, label in zip(runs, labels, strict=True):
        one.label = label


def printable(text: str) -> str:
    """Without what would steer a terminal, and what no file can hold."""
    return "".join(character if character.isprintable() else "?" for character in text)


def base_index(runs: list[Run], base: str | None) -> int:
    labels = [run.label for run in runs]
    if base is None:
        return 0
    if base not in labels:
        raise UserError(f"no run has the label {base}", f"--base takes one of: {', '.join(labels)}")
    return labels.index(base)


def show(comparison: Comparison) -> None:
    console = Terminal()
    for grid in writers.grids(comparison)[:3]:  # the settings that differ are for the files
        table = Table(title=Text(grid.title))
        for index, name in enumerate(grid.head):
            table.add_column(Text(name), justify="right" if index else "left", overflow="fold")
        for row in grid.rows:
            table.add_row(*map(Text, row))
        console.print(table)
    for line in (writers.explanation(comparison), *writers.headline(comparison)):
        console.print(Text(line))
    for warning in comparison.warnings:
        console.print(Text(f"warning: {printable(warning)}", style="yellow"))


def write(comparison: Comparison, folder: Path) -> None:
    from qwen3_rl.report.page import html

    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "compare.md": writers.markdown,
        "compare.csv": writers.csv_text,
        "compare.json": writers.json_text,
        "report.html": html,
    }
    for name, writer in texts.items():
        (folder / name).write_text(writer(comparison), encoding="utf-8", errors="replace")
    try:
        from qwen3_rl.report.curves import write_curves

        write_curves(comparison, folder / "curves.png")
    except ImportError as error:
        print(f"curves.png was not drawn: {error}; pip install 'qwen3-rl[report]'", file=sys.stderr)
    print(f"written: {folder}/compare.md, compare.csv, compare.json, curves.png, report.html")
