"""metrics.jsonl: one JSON object a training step, veRL's own metric names as keys."""

import json
import math
from pathlib import Path

from qwen3_rl.report.steps import Steps

# Written by veRL's file logger (verl/utils/tracking.py, FileLogger): {"step": N, "data": {metric: value}} a line.
RAW_METRICS = "verl-tracking.jsonl"
METRICS = "metrics.jsonl"
TREES = "trees.txt"  # a line for each patched tree that the run imports


def read_tracking(path: Path) -> list[dict]:
    """The steps in ``path``, in order, each {"step": N, metric: value}; a last line cut off by a kill is left out.

    Lines of one step (training, then validation) are merged; steps that were run again after a restart replace the
    earlier ones.
    """
    steps = Steps()
    for line in path.read_text().splitlines():
        try:
            record = json.loads(line)
            step, data = record["step"], record["data"]
        except (ValueError, KeyError, TypeError):
            continue
        steps.add(step, data)
    return [{"step": step, **data} for step, data in steps.all()]


def write_metrics(run_folder: Path) -> int:
    """Turn veRL's tracking file into metrics.jsonl; returns the number of training steps, 0 where there is no file."""
    raw = run_folder / RAW_METRICS
    if not raw.is_file():
        return 0
    steps = read_tracking(raw)
    (run_folder / METRICS).write_text("".join(json.dumps(step) + "\n" for step in steps))
    raw.unlink()
    return sum("training/global_step" in step for step in steps)


def read_metrics(run_folder: Path) -> list[dict]:
    """The training steps of metrics.jsonl; NaN where it has null, as veRL's file logger writes what is not finite."""
    with (run_folder / METRICS).open() as file:
        steps = [step for line in file if "training/global_step" in (step := json.loads(line))]
    return [{name: math.nan if value is None else value for name, value in step.items()} for step in steps]
