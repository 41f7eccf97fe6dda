"""A run to compare, from what it left: a console log, a metrics jsonl, TensorBoard events, an outputs/RUN folder."""

import gzip
import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

from qwen3_rl.errors import UserError
from qwen3_rl.report.console import LONGEST_LINE, SETTINGS_WITHIN, Console, Lines, versions
from qwen3_rl.report.events import event_files, read_events
from qwen3_rl.report.metrics import METRICS, RAW_METRICS, TREES
from qwen3_rl.report.names import KEPT
from qwen3_rl.report.steps import KeptSteps

BLOCK = 1 << 20
TRAIN_LOG = "train.log"
A_RUN = "name a console log of veRL, a metrics jsonl, a TensorBoard folder or an outputs/RUN folder"


@dataclass
class Run:
    """What is known of a run. settings: veRL's own, with dotted names, empty where the source has none."""

    label: str
    path: Path
    steps: KeptSteps
    settings: dict[str, object] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_run(path: Path) -> Run:
    """Raises UserError if there is no training step in it."""
    if path.is_dir():
        run = _folder(path)
    elif path.is_file():
        run = _events(path, [path]) if ".tfevents." in path.name else _text(path)
    else:
        raise UserError(f"{path} is neither a file nor a folder", A_RUN)
    if not run.steps.training():
        raise UserError(f"{path} holds no training step", A_RUN)
    return run


def _folder(folder: Path) -> Run:
    log = folder / TRAIN_LOG
    for name in (METRICS, RAW_METRICS):
        if (folder / name).is_file():
            run = _text(folder / name)
            if log.is_file():
                console = Console()
                for block in islice(blocks(log, run.notes), SETTINGS_WITHIN // BLOCK):
                    console.feed(block)
                run.settings, run.versions = console.settings, console.versions
            break
    else:
        if log.is_file():
            run = _text(log)
        elif files := event_files(folder):
            run = _events(folder, files)
        else:
            raise UserError(f"{folder} holds no {METRICS}, no {TRAIN_LOG} and no event file", A_RUN)
    if (folder / TREES).is_file():
        for line in (folder / TREES).read_text(errors="replace").splitlines():
            run.versions |= versions(line)
    run.label, run.path = folder.absolute().name, folder
    return run


def _events(path: Path, files: list[Path]) -> Run:
    steps, notes = read_events(files)
    return Run(path.absolute().name, path, steps, notes=notes)


def _text(path: Path) -> Run:
    stem = path.name.removesuffix(".gz").rpartition(".")[0] or path.name
    label = path.absolute().parent.name if path.name == TRAIN_LOG else stem
    notes: list[str] = []
    stream = blocks(path, notes)
    first = _first_line(stream)
    if not first:
        raise UserError(f"{path} is empty" if not notes else f"{path}: {notes[0]}", A_RUN)
    if first.lstrip().startswith(b"{") and _jsonl_record(first.lstrip().partition(b"\n")[0]):
        return Run(label, path, _jsonl(first, stream, notes), notes=notes)
    console = Console()
    console.feed(first)
    for block in stream:
        console.feed(block)
    if not console.steps.training() and b"\0" in first:
        raise UserError(f"{path} is a binary file without a step of veRL", A_RUN)
    return Run(label, path, console.steps, console.settings, console.versions, notes + console.notes())


def _first_line(stream: Iterator[bytes]) -> bytes:
    """The blocks that hold it, in one: a block can be as short as a file's buffer, a step has about that."""
    first = bytearray()
    for block in stream:
        first += block
        if b"\n" in block or len(first) > LONGEST_LINE:
            break
    return bytes(first)


def blocks(path: Path, notes: list[str]) -> Iterator[bytes]:
    """The file's text in blocks, unpacked where it is gzip; a gzip that breaks off ends there, with a note."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        source = gzip.GzipFile(fileobj=file) if packed else file
        try:
            while block := source.read1(BLOCK):  # what is there: the end of a broken gzip too
                yield block
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            notes.append(f"the gzip file breaks off or is damaged ({error}); what came before is read")


def _jsonl(first: bytes, stream: Iterator[bytes], notes: list[str]) -> KeptSteps:
    steps, lines, broken = KeptSteps(), Lines(), 0
    for block in chain([first], stream):
        broken += _add_records(steps, lines.feed(block))
    broken += _add_records(steps, lines.rest)
    if broken or lines.dropped:
        notes.append(f"{broken + lines.dropped} lines hold no whole step and were left out")
    if steps.restarts:
        notes.append(f"restarted {steps.restarts} times; steps that ran again count once, the last time")
    return steps


def _add_records(steps: KeptSteps, text: bytes) -> int:
    """Returns the number of lines that hold no step."""
    broken = 0
    for line in text.splitlines():
        if record := _jsonl_record(line):
            steps.add(*record)
        else:
            broken += bool(line.strip())
    return broken


def _jsonl_record(line: bytes) -> tuple[int, dict[str, float]] | None:
    """(step, metrics) of {"step": N, "data": {...}} (veRL's file logger) or of a flat object; null stands for NaN."""
    try:
        record = json.loads(line)
        step = int(record["step"])
        data = record.get("data", record)
        values = {name: math.nan if value is None else value for name, value in data.items() if name in KEPT}
        return step, {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
