"""Time and peak memory of converting large files: python benchmarks/bench_data.py [ROWS] (default 1,000,000).

Makes files in the form of DAPO-Math-17k (parquet, in one row group, as published) and DeepScaleR (a JSON array and JSON
lines), every problem different, and converts each with `qwen3-rl data` in a process of its own.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from qwen3_rl.data.convert import schema
from qwen3_rl.data.sets import DAPO_END, DAPO_START

CHUNK = 50_000
# VmHWM, not ru_maxrss: the latter starts at what the process was before exec.
PEAK = """
import re, sys
from pathlib import Path
from qwen3_rl.cli import main
code = main(sys.argv[1:])
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
sys.exit(code)
"""


def problem(number: int) -> str:
    return f"Let $x_{{{number}}}$ be the root of $x^2-{number}x+{number * 7919 % 10007}=0$. " + "Find its value. " * 20


def verl_rows(start: int) -> list[dict]:
    return [
        {
            "data_source": "math_dapo",
            "prompt": [{"role": "user", "content": DAPO_START + problem(number) + DAPO_END}],
            "ability": "MATH",
            "reward_model": {"style": "rule", "ground_truth": str(number)},
            "extra_info": {"split": "train", "index": number, "problem": ""},
        }
        for number in range(start, start + CHUNK)
    ]


def write_parquet(path: Path, count: int) -> None:
    chunks = (pa.Table.from_pylist(verl_rows(start), schema=schema()) for start in range(0, count, CHUNK))
    pq.write_table(pa.concat_tables(chunks), path, row_group_size=count)


def write_json(path: Path, count: int) -> None:
    array = path.suffix == ".json"
    with path.open("w") as file:
        for number in range(count):
            row = json.dumps({"problem": problem(number), "answer": str(number), "solution": "as follows. " * 20})
            file.write(("[" if number == 0 else ",") * array + row + "\n")
        file.write("]" * array)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory(prefix="bench-data-") as name:
        folder = Path(name)
        for data_set, file in (("dapo-math", "d.parquet"), ("deepscaler", "d.json"), ("deepscaler", "d.jsonl")):
            path = folder / file
            (write_parquet if file == "d.parquet" else write_json)(path, count)
            arguments = ["data", data_set, "--from", path, "--to", folder / "out"]
            start = time.perf_counter()
            done = subprocess.run([sys.executable, "-c", PEAK, *arguments], check=True, capture_output=True, text=True)
            print(
                f"{file}: {count:,} rows, {path.stat().st_size / 1e6:.0f} MB, {time.perf_counter() - start:.0f} s, "
                f"peak {int(done.stdout.split()[-1]) * 1024 / 1e6:.0f} MB",
                flush=True,
            )
            path.unlink()
            (folder / "out/train.parquet").unlink()


if __name__ == "__main__":
    main()
