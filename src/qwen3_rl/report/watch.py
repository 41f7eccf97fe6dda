"""`qwen3-rl watch LOG`: the steps of a running job as a table that grows, and when it will end."""

import argparse
import math
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from patchset.terminal import Terminal
from qwen3_rl.errors import UserError
from qwen3_rl.report.console import Console
from qwen3_rl.report.names import DEVICE_RATE, ENTROPY, GENERATION, LENGTH, REWARD, STEP, UPDATE, Metric
from qwen3_rl.report.sources import BLOCK, TRAIN_LOG

COLUMNS = {
    REWARD: "reward",
    LENGTH: "length",
    ENTROPY: "entropy",
    GENERATION: "generation s",
    UPDATE: "update s",
    STEP: "step s",
    DEVICE_RATE: "tokens/s device",
}
RECENT = 10  # steps whose median the time to the end is reckoned by
POLL_SECONDS = 1.0


class Follower:
    """Reads a log that grows. One that is written anew (shorter, or another file) is read from its start."""

    def __init__(self, path: Path):
        self.path = path
        self.console = Console()
        self._at = 0
        self._file = 0

    def read(self) -> None:
        with self.path.open("rb") as file:
            state = self.path.stat()
            if state.st_size < self._at or state.st_ino != self._file:
                self.console, self._at, self._file = Console(), 0, state.st_ino
            file.seek(self._at)
            while block := file.read(BLOCK):
                self.console.feed(block)
            self._at = file.tell()

    @property
    def done(self) -> bool:
        steps = self.console.steps.training()
        return bool(steps) and self.console.total is not None and steps[-1] >= self.console.total


def values(console: Console, metric: Metric) -> dict[int, float]:
    """The metric under the first of its names that the log has."""
    return next((found for name in metric.names if (found := console.steps.series(name))), {})


def progress(console: Console, now: datetime) -> str:
    """Step, total, and the time to the end by the median of the last steps."""
    steps = console.steps.training()
    if not steps:
        return "no step yet"
    said = f"step {steps[-1]}" + (f" of {console.total}" if console.total else "")
    recent = [value for value in list(values(console, STEP).values())[-RECENT:] if math.isfinite(value)]
    if not recent or not console.total:
        return said
    try:
        left = timedelta(seconds=round(median(recent) * max(0, console.total - steps[-1])))
        end = f"{now + left:%Y-%m-%d %H:%M}"
    except OverflowError:  # beyond what a calendar has
        return said
    return f"{said}, {left} to go at {median(recent):.1f} s a step, until {end}"


def table(console: Console, rows: int) -> Table:
    """The last ``rows`` steps."""
    result = Table()
    result.add_column("step", justify="right")
    for heading in COLUMNS.values():
        result.add_column(heading, justify="right")
    series = [values(console, metric) for metric in COLUMNS]
    for step in console.steps.training()[-rows:]:
        result.add_row(str(step), *(f"{found[step]:.4g}" if step in found else "-" for found in series))
    return result


def view(follower: Follower, rows: int) -> Group:
    notes = [Text(note, style="yellow") for note in follower.console.notes() if "cut off" not in note]
    return Group(table(follower.console, rows), Text(progress(follower.console, datetime.now())), *notes)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", type=Path, help="the console log that the job writes, or its outputs/RUN folder")
    parser.add_argument("--rows", type=int, default=20, metavar="N", help="steps to show (default: 20)")
    parser.add_argument("--once", action="store_true", help="print the table once instead of following the log")


def run(args: argparse.Namespace) -> int:
    path = args.log / TRAIN_LOG if args.log.is_dir() else args.log
    if not path.is_file():
        raise UserError(f"{path} is no file", "name the console log of a running job, or its outputs/RUN folder")
    if args.rows < 1:
        raise UserError("--rows is below 1", "see qwen3-rl watch --help")
    with path.open("rb") as file:
        if file.read(2) == b"\x1f\x8b":
            raise UserError(f"{path} is packed", f"a packed log does not grow: qwen3-rl compare {path} OTHER")
    follower = Follower(path)
    follower.read()
    terminal = Terminal()
    if args.once or not sys.stdout.isatty():
        terminal.print(view(follower, args.rows))
        return 0
    with Live(view(follower, args.rows), console=terminal, auto_refresh=False) as live:
        while not follower.done:
            time.sleep(POLL_SECONDS)
            follower.read()
            live.update(view(follower, args.rows), refresh=True)
    return 0
