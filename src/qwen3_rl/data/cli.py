"""`qwen3-rl data SET`: training data in veRL's parquet form, written whole or not at all."""

import argparse
import os
from pathlib import Path

from qwen3_rl.data import arithmetic, countdown
from qwen3_rl.errors import UserError

SETS = {"arithmetic": arithmetic, "countdown": countdown}
SPLIT_SEEDS = {"train": 1, "test": 2}


def write_parquet(rows: list[dict], path: Path) -> None:
    """Writes ``rows`` to ``path`` by way of a sibling file, so that a reader never meets half a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    part = path.with_name(f".{path.name}.part-{os.getpid()}")
    try:
        pq.write_table(pa.Table.from_pylist(rows), part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("set", choices=list(SETS), help="which data set")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="gets train.parquet and test.parquet")
    parser.add_argument("--train-rows", type=int, default=4096, help="rows of train.parquet (default: 4096)")
    parser.add_argument("--test-rows", type=int, default=128, help="rows of test.parquet (default: 128)")


def run(args: argparse.Namespace) -> int:
    for option, count in (("--train-rows", args.train_rows), ("--test-rows", args.test_rows)):
        if count < 1:
            raise UserError(f"{option} is {count}", f"give {option} a number of at least 1")
    args.to.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", args.train_rows), ("test", args.test_rows)):
        path = args.to / f"{split}.parquet"
        if path.exists():
            print(f"{path}: already there")
            continue
        write_parquet(SETS[args.set].build_rows(count, SPLIT_SEEDS[split], split), path)
        print(f"{path}: {count} rows")
    return 0
