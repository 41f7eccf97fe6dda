"""What stands against comparing two runs: another batch, other lengths, another model, other versions."""

import math
from collections.abc import Iterator
from statistics import fmean, median

from qwen3_rl.report import names
from qwen3_rl.report.sources import Run

# Settings of veRL (0.5 to 0.7 name them alike) that must be equal for a fair comparison.
MUST_MATCH = {
    "data.train_batch_size": "prompts a step",
    "actor_rollout_ref.rollout.n": "responses a prompt",
    "data.max_prompt_length": "prompt limit",
    "data.max_response_length": "response limit",
    "actor_rollout_ref.model.path": "model",
    "algorithm.adv_estimator": "algorithm",
}
LENGTHS_APART = 1.1  # the longer mean over the shorter


def not_comparable(runs: list[Run], steps: list[list[int]]) -> Iterator[str]:
    """A line for each difference, from what the settings say and from what the metrics of ``steps`` show."""
    pairs = list(zip(runs, steps, strict=True))
    facts = {
        "responses a step": [responses(run, kept) for run, kept in pairs],
        "devices (compare tokens/s per device)": [devices(run, kept) for run, kept in pairs],
        "longest response allowed": [response_limit(run) for run in runs],
    }
    facts |= {what: [_setting(run, name) for run in runs] for name, what in MUST_MATCH.items()}
    for name in sorted({name for run in runs for name in run.versions}):
        facts[f"version of {name}"] = [run.versions.get(name) for run in runs]
    for what, values in facts.items():
        if len({value for value in values if value is not None}) > 1:
            yield f"not the same {what}: {said(runs, values)}"
    for what, name in (("prompts", names.PROMPT), ("responses (times are not of equal work)", names.LENGTH.key)):
        lengths = [_average(run, kept, lambda length: length, name, average=fmean) for run, kept in pairs]
        known = [length for length in lengths if length is not None]
        if known and max(known) > LENGTHS_APART * min(known):
            yield f"not the same {what}, by their mean length: {said(runs, [n and round(n, 1) for n in lengths])}"
    unknown = [run.label for run in runs if not run.settings]
    if unknown:
        yield f"model and settings are unknown for {', '.join(unknown)}: only metrics were compared"


def said(runs: list[Run], values: list) -> str:
    return ", ".join(f"{run.label} {value}" for run, value in zip(runs, values, strict=True) if value is not None)


def _average(run: Run, steps: list[int], formula, *wanted: str, average=median) -> float | None:
    """The average of ``formula`` over the steps that have all the ``wanted`` metrics."""
    series = [run.steps.series(name) for name in wanted]
    values = []
    for step in steps:
        if all(step in one for one in series):
            try:
                values.append(formula(*(one[step] for one in series)))
            except ZeroDivisionError:
                continue
    values = [value for value in values if math.isfinite(value)]
    return average(values) if values else None


def responses(run: Run, steps: list[int]) -> int | None:
    """Responses a step: all tokens over those of the mean prompt and response."""
    wanted = (names.TOKENS, names.PROMPT, names.LENGTH.key)
    count = _average(run, steps, lambda tokens, prompt, response: tokens / (prompt + response), *wanted)
    return None if count is None else round(count)


def devices(run: Run, steps: list[int]) -> int | None:
    """Accelerators of the run: tokens/s over tokens/s per device."""
    count = _average(run, steps, lambda rate, each: rate / each, names.RATE.key, names.DEVICE_RATE.key)
    return None if count is None else round(count)


def response_limit(run: Run) -> float | None:
    """The length at which responses were cut off; None where none was."""
    clipped, longest = run.steps.series(names.CLIPPED), run.steps.series(names.LONGEST)
    return max((longest[step] for step, share in clipped.items() if share > 0 and step in longest), default=None)


def _setting(run: Run, name: str) -> object:
    return _last_part(run.settings.get(name))


def _last_part(value: object) -> object:
    """Of a path its last part, of any other value the value."""
    return value.rstrip("/").rpartition("/")[2] if isinstance(value, str) else value


def settings_apart(runs: list[Run]) -> dict[str, list[object]]:
    """The settings that differ between the runs that print theirs; where a file or folder lies is no difference."""
    known = [run for run in runs if run.settings]
    if len(known) < 2:
        return {}
    apart = {}
    for name in sorted(set().union(*(run.settings for run in known))):
        values = [run.settings.get(name) if run.settings else None for run in runs]
        if len({repr(_last_part(run.settings.get(name))) for run in known}) > 1 and not name.endswith("_dir"):
            apart[name] = values
    return apart
