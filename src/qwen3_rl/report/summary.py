"""`qwen3-rl summary RUN`: the steps of one run as a table and as curves.png."""

import argparse
from pathlib import Path
from statistics import fmean

from rich.table import Table

from patchset.terminal import Terminal
from qwen3_rl.errors import UserError
from qwen3_rl.report import names
from qwen3_rl.report.drawing import COLOURS, plain, save_figure, style_curve
from qwen3_rl.report.metrics import METRICS, read_metrics

REWARD, LENGTH, SECONDS = names.REWARD.key, names.LENGTH.key, names.STEP.key


def table(steps: list[dict]) -> Table:
    result = Table(title="GRPO steps")
    for name in ("step", "reward", "response length", "seconds"):
        result.add_column(name, justify="right")
    for step in steps:
        result.add_row(str(step["step"]), f"{step[REWARD]:.3f}", f"{step[LENGTH]:.1f}", f"{step[SECONDS]:.1f}")
    return result


def draw(steps: list[dict], path: Path, title: str) -> None:
    """curves.png: reward above, response length below, over the step."""
    x = [step["step"] for step in steps]

    def fill(figure, axes) -> None:
        labels = ("reward (mean)", "response length (mean, tokens)")
        for axis, key, label, colour in zip(axes, (REWARD, LENGTH), labels, COLOURS, strict=False):
            axis.plot(x, [step[key] for step in steps], marker="o", markersize=3, color=colour)
            style_curve(axis, label)
            axis.set_ylim(bottom=0)
        axes[1].set_xlabel("training step")
        figure.suptitle(plain(title))

    save_figure(path, 2, 1, (8, 6), fill)


def verdict(steps: list[dict]) -> str:
    """One sentence: the reward at both ends, and the time."""
    few = min(5, len(steps))
    first = fmean(step[REWARD] for step in steps[:few])
    last = fmean(step[REWARD] for step in steps[-few:])
    seconds = sum(step[SECONDS] for step in steps)
    ends = f"mean reward {first:.3f} in the first {few} steps, {last:.3f} in the last {few}"
    return f"{ends}; {len(steps)} steps took {seconds:.0f} s"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="an outputs/RUN folder")


def run(args: argparse.Namespace) -> int:
    if not (args.run_folder / METRICS).is_file():
        raise UserError(f"{args.run_folder} holds no {METRICS}", "name a folder under outputs/ whose run has ended")
    steps = read_metrics(args.run_folder)
    if not steps:
        raise UserError(f"{args.run_folder / METRICS} holds no training step", f"read {args.run_folder / 'train.log'}")
    Terminal().print(table(steps))
    draw(steps, args.run_folder / "curves.png", args.run_folder.name)
    print(verdict(steps))
    print(f"curves: {args.run_folder / 'curves.png'}")
    return 0
