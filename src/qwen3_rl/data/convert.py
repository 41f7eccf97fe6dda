"""From published files to veRL's parquet, in batches: checked row by row, and written whole or not at all."""

import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from qwen3_rl.data.raw import BATCH_ROWS, read_rows
from qwen3_rl.data.sets import DataSet, Item, bare_problem, problem_key
from qwen3_rl.errors import UserError


@dataclass
class Lengths:
    """How prompts are measured: ``measure`` gives a prompt's length in ``unit``; longer ones than ``limit`` are out."""

    measure: Callable[[str], int] = len
    unit: str = "characters"
    limit: int | None = None


@dataclass
class Summary:
    """What became of one split's rows. ``left_out`` maps a reason to how many rows and the first of them."""

    split: str
    read: int = 0
    written: int = 0
    left_out: dict[str, tuple[int, str]] = field(default_factory=dict)
    lengths: array = field(default_factory=lambda: array("I"))

    def leave_out(self, reason: str, where: str) -> None:
        count, first = self.left_out.get(reason, (0, where))
        self.left_out[reason] = (count + 1, first)

    def lines(self, unit: str) -> list[str]:
        lines = [f"{self.written:,} of {self.read:,} rows"]
        for reason, (count, first) in self.left_out.items():
            lines.append(f"left out: {count:,} {reason} (the first: {first})")
        if ordered := sorted(self.lengths):
            middle, most = (ordered[len(ordered) * share // 100] for share in (50, 99))
            lines.append(f"prompts in {unit}: median {middle}, 99% up to {most}, longest {ordered[-1]}")
        return lines


def schema():
    """veRL's dataset form; ``extra_info.index`` is the row's number in the file, which samplers know it by."""
    import pyarrow as pa

    text = pa.string()
    return pa.schema(
        {
            "data_source": text,
            "prompt": pa.list_(pa.struct({"role": text, "content": text})),
            "ability": text,
            "reward_model": pa.struct({"style": text, "ground_truth": text}),
            "extra_info": pa.struct({"split": text, "index": pa.int64(), "problem": text}),
        }
    )


def known_problems(path: Path) -> set[bytes]:
    """The keys of the problems in a converted file, or another of veRL's form. Raises UserError for any other file."""
    keys = set()
    for row in read_rows(path):
        try:
            problem = (row.get("extra_info") or {}).get("problem") or bare_problem(row["prompt"][-1]["content"])
        except (KeyError, IndexError, TypeError):
            raise UserError(f"{path} has no prompts in veRL's form", "convert it first: qwen3-rl data SET") from None
        keys.add(problem_key(problem))
    return keys


def items(dataset: DataSet, files: list[Path]) -> Iterator[tuple[str, Item]]:
    """Every row with where it came from. Raises UserError for a row of another form than the set's."""
    for file in files:
        for number, row in enumerate(read_rows(file)):
            try:
                yield f"{file.name} row {number}", dataset.item(row)
            except (KeyError, IndexError, TypeError) as error:
                raise UserError(
                    f"{file}: row {number} is not in the form of {dataset.hub} ({type(error).__name__}: {error}); "
                    f"its columns are {', '.join(map(str, row))}",
                    "name the published file, and its set",
                ) from None


def checked(
    rows: Iterable[tuple[str, Item]], summary: Summary, held_out: set[bytes], lengths: Lengths, seen: dict[bytes, int]
) -> Iterator[Item]:
    """The rows to keep; the others are counted in ``summary``. ``seen`` gets the keys of those kept."""
    for where, item in rows:
        summary.read += 1
        key = item.key()
        length = lengths.measure(item.prompt)
        if not item.problem:
            summary.leave_out("without a problem", where)
        elif not item.answer:
            summary.leave_out("without an answer", where)
        elif key in seen:
            same = seen[key] == hash(item.answer)
            summary.leave_out("duplicates" if same else "duplicates with another answer", where)
        elif key in held_out:
            summary.leave_out("that are in the validation set", where)
        elif lengths.limit is not None and length > lengths.limit:
            summary.leave_out(f"longer than {lengths.limit} {lengths.unit}", where)
        else:
            seen[key] = hash(item.answer)
            summary.lengths.append(length)
            yield item


def write_split(kept: Iterable[Item], dataset: DataSet, summary: Summary, part: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    batch = []
    with part.open("wb") as file, pq.ParquetWriter(file, schema()) as writer:

        def flush() -> None:
            writer.write_table(pa.Table.from_pylist(batch, schema=schema()))
            batch.clear()

        for item in kept:
            batch.append(
                {
                    "data_source": dataset.data_source,
                    "prompt": [{"role": "user", "content": item.prompt}],
                    "ability": "math",
                    "reward_model": {"style": "rule", "ground_truth": item.answer},
                    "extra_info": {"split": summary.split, "index": summary.written, "problem": item.problem},
                }
            )
            summary.written += 1
            if len(batch) == BATCH_ROWS:
                flush()
        if batch:
            flush()
        writer.close()
        file.flush()
        os.fsync(file.fileno())


def part_of(path: Path) -> Path:
    """Where ``path`` is written first; what a killed process has left there is removed."""
    for old in path.parent.glob(f".{path.name}.part-*"):
        try:
            os.kill(int(old.name.rpartition("-")[2]), 0)
        except ProcessLookupError:
            old.unlink(missing_ok=True)
        except (OSError, ValueError):
            pass
    return path.with_name(f".{path.name}.part-{os.getpid()}")


def convert(
    dataset: DataSet, files: dict[str, list[Path]], to: Path, held_out: set[bytes], lengths: Lengths
) -> list[Summary]:
    """Writes ``to/SPLIT.parquet`` for each split of ``files``, all or none; the test split's problems are held out too.

    Raises UserError if a file is there already, is not in the set's form, or keeps no row.
    """
    targets = {split: to / f"{split}.parquet" for split in sorted(files)}  # test before train
    for path in targets.values():
        if path.exists():
            raise UserError(f"{path} exists", "remove it, or name another folder with --to")
    to.mkdir(parents=True, exist_ok=True)
    parts = {split: part_of(path) for split, path in targets.items()}
    summaries = []
    try:
        for split, part in parts.items():
            summary, seen = Summary(split), {}
            kept = checked(items(dataset, files[split]), summary, held_out, lengths, seen)
            write_split(kept, dataset, summary, part)
            if not summary.written:
                raise UserError(f"{split}: " + "; ".join(summary.lines(lengths.unit)), "is it the right file and set?")
            if split == "test":
                held_out = held_out | seen.keys()
            summaries.append(summary)
        for split, part in parts.items():
            part.replace(targets[split])
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
    return summaries
