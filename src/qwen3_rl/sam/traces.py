"""Recorded rollouts: {"groups": [{"prompt": [ids], "epochs": [[responses of ids], ...]}]} in a JSON file."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qwen3_rl.errors import UserError


@dataclass(frozen=True)
class TraceGroup:
    """A prompt (int32 [n]) and, for each epoch, its responses (int32 [m], m >= 1)."""

    prompt: np.ndarray
    epochs: list[list[np.ndarray]]


def load_traces(path: Path) -> list[TraceGroup]:
    """Read a trace file. Raises UserError naming what is wrong and where."""
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise UserError(f"can't read {path}: {error.strerror}", "give the path of a trace file") from None
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}", "see the form of a trace file in docs/sam.md") from None
    try:
        groups = [
            TraceGroup(_ids(group["prompt"], 0), [[_ids(r, 1) for r in epoch] for epoch in group["epochs"]])
            for group in data["groups"]
        ]
        if not groups or not all(group.epochs and all(group.epochs) for group in groups):
            raise ValueError("no groups, or a group without responses")
    except (KeyError, TypeError, ValueError) as error:
        what = f"key {error} is missing" if isinstance(error, KeyError) else str(error)
        raise UserError(f"{path} is not a trace file: {what}", "see the form of a trace file in docs/sam.md") from None
    return groups


def _ids(values, least: int) -> np.ndarray:
    array = np.asarray(values)
    if array.size < least:
        raise ValueError("a response is empty")
    if array.size and (array.ndim != 1 or array.dtype.kind != "i" or array.min() < 0 or array.max() >= 1 << 31):
        raise ValueError("token ids must be integers from 0 to 2**31 - 1")
    return array.astype(np.int32)
