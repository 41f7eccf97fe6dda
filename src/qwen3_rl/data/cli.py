"""`qwen3-rl data SET`: training data in veRL's parquet form, written whole or not at all."""

import argparse
from pathlib import Path

from qwen3_rl.data import arithmetic, countdown
from qwen3_rl.data.convert import Lengths, convert, known_problems, part_of
from qwen3_rl.data.raw import find_files
from qwen3_rl.data.sets import SETS, DataSet
from qwen3_rl.errors import UserError

MADE = {
    "arithmetic": (arithmetic, "small sums"),
    "countdown": (countdown, "prompts that say how long their answer is"),
}
SPLIT_SEEDS = {"train": 1, "test": 2}
HUB = "hub"


def write_parquet(rows: list[dict], path: Path) -> None:
    """Writes ``rows`` to ``path`` by way of a sibling file, so that a reader never meets half a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    part = part_of(path)
    try:
        pq.write_table(pa.Table.from_pylist(rows), part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    sets = parser.add_subparsers(dest="set", metavar="SET", required=True)
    for name, (_, what) in MADE.items():
        sub = sets.add_parser(name, help=f"{what}, made here, for the tiny model")
        sub.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="gets train.parquet and test.parquet")
        sub.add_argument("--train-rows", type=int, default=4096, help="rows of train.parquet (default: 4096)")
        sub.add_argument("--test-rows", type=int, default=128, help="rows of test.parquet (default: 128)")
    for name, dataset in SETS.items():
        help_text = f"from the files of {dataset.hub}"
        sub = sets.add_parser(name, help=help_text, description=help_text[0].upper() + help_text[1:] + ".")
        sub.add_argument(
            "--from",
            dest="source",
            required=True,
            metavar="FILE_OR_FOLDER",
            help=f"published files (parquet, json, jsonl), or `{HUB}` for the Hugging Face hub",
        )
        sub.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="gets train.parquet, test.parquet")
        sub.add_argument(
            "--validation",
            type=Path,
            action="append",
            default=[],
            metavar="FILE_OR_FOLDER",
            help="validation data in veRL's form: problems in it are left out of what is written",
        )
        sub.add_argument("--tokenizer", metavar="FOLDER", help="the model's folder: prompts are measured in its tokens")
        sub.add_argument("--max-prompt-length", type=int, metavar="TOKENS", help="longer prompts are left out")


def token_lengths(folder: str | None, limit: int | None) -> Lengths:
    """Prompts measured as veRL measures them: the chat template's tokens with the start of the answer."""
    if folder is None:
        if limit is not None:
            raise UserError("--max-prompt-length counts a model's tokens", "name the model's folder with --tokenizer")
        return Lengths()
    if not (Path(folder) / "tokenizer_config.json").is_file():
        raise UserError(f"--tokenizer {folder}: no tokenizer_config.json there", "name the model's folder")
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)

        def measure(prompt: str) -> int:
            return len(tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True))

        measure("")
    except (OSError, ValueError) as error:
        raise UserError(f"--tokenizer {folder}: {str(error).splitlines()[0]}", "name the model's folder") from None
    return Lengths(measure, "tokens", limit)


def from_hub(dataset: DataSet) -> Path:
    """The folder that the hub's library keeps the set's files in, fetched if they are not there yet."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(dataset.hub, repo_type="dataset", allow_patterns=["*.parquet", "*.json"]))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{dataset.hub} could not be fetched: {str(error).splitlines()[0]}",
            "set HF_ENDPOINT to a mirror, or fetch the files elsewhere and name them with --from FILE_OR_FOLDER",
        ) from None


def run(args: argparse.Namespace) -> int:
    return make_rows(args) if args.set in MADE else convert_published(args)


def convert_published(args: argparse.Namespace) -> int:
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())  # the default one keeps freed batches: memory grew with the file
    dataset = SETS[args.set]
    lengths = token_lengths(args.tokenizer, args.max_prompt_length)
    source = from_hub(dataset) if args.source == HUB else Path(args.source)
    files: dict[str, list[Path]] = {}
    for file in find_files(source):
        # GSM8K is published in a second wording, with the same problems, and the hub's sets with a description.
        if file != source and ("socratic" in str(file.relative_to(source)) or file.name == "dataset_infos.json"):
            continue
        files.setdefault(dataset.split_of(file), []).append(file)
    held_out = set()
    for path in args.validation:
        for file in find_files(path):
            held_out |= known_problems(file)
    for summary in convert(dataset, files, args.to, held_out, lengths):
        first, *rest = summary.lines(lengths.unit)
        print(f"{args.to / summary.split}.parquet: {first}")
        for line in rest:
            print(f"    {line}")
    return 0


def make_rows(args: argparse.Namespace) -> int:
    for option, count in (("--train-rows", args.train_rows), ("--test-rows", args.test_rows)):
        if count < 1:
            raise UserError(f"{option} is {count}", f"give {option} a number of at least 1")
    args.to.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", args.train_rows), ("test", args.test_rows)):
        path = args.to / f"{split}.parquet"
        if path.exists():
            print(f"{path}: already there")
            continue
        write_parquet(MADE[args.set][0].build_rows(count, SPLIT_SEEDS[split], split), path)
        print(f"{path}: {count} rows")
    return 0
