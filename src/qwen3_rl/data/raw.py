"""Published files, read row by row: parquet, a JSON array, or JSON lines, whatever the size."""

import json
from collections.abc import Iterator
from pathlib import Path

from qwen3_rl.errors import UserError

SUFFIXES = (".parquet", ".json", ".jsonl")
# Rows in memory at a time; prompts are a few kilobytes at most.
BATCH_ROWS = 2000


def find_files(path: Path) -> list[Path]:
    """``path`` itself, or the data files below a folder, hidden ones left out. Raises UserError if there are none."""
    if not path.exists():
        raise UserError(f"{path} does not exist", "name the published file, or the folder that it is in, with --from")
    if path.is_file():
        files = [path]
    else:
        below = [file.relative_to(path) for file in sorted(path.rglob("*")) if file.is_file()]
        files = [path / name for name in below if not any(part.startswith(".") for part in name.parts)]
    files = [file for file in files if file.suffix in SUFFIXES]
    if not files:
        raise UserError(f"{path}: no {', '.join(SUFFIXES)} file", "name the published file with --from")
    return files


def read_rows(path: Path) -> Iterator[dict]:
    """The rows of one file, BATCH_ROWS in memory at a time. Raises UserError if it is not what its name says."""
    for number, row in enumerate(_parquet(path) if path.suffix == ".parquet" else _json(path)):
        if not isinstance(row, dict):
            raise UserError(f"{path}: row {number} is no object but {type(row).__name__}", "name a file of objects")
        yield row


def _parquet(path: Path) -> Iterator[dict]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Buffered: otherwise a whole column of a row group, all of the file as published, is read at once.
        with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
            for batch in file.iter_batches(BATCH_ROWS):
                yield from batch.to_pylist()
    except pa.ArrowException as error:
        raise UserError(
            f"{path}: {str(error).splitlines()[0]}", "fetch the file anew; is it a Git LFS pointer?"
        ) from None


def _json(path: Path) -> Iterator[dict]:
    import ijson

    with path.open("rb") as file:
        start = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        file.seek(0)
        try:
            if start == b"[":
                yield from ijson.items(file, "item", use_float=True)
                return
            for number, line in enumerate(file, 1):  # noqa: B007 (for the message)
                if line.strip():
                    yield json.loads(line.decode("utf-8-sig"))
        except (ijson.JSONError, ValueError) as error:
            where = "" if start == b"[" else f", line {number}"
            raise UserError(f"{path}{where}: {error}", "fetch the file anew; is it a Git LFS pointer?") from None
