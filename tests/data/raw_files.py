"""Small hand-written files in the forms that the data sets are published in."""

import json
from pathlib import Path

DAPO_PROMPT = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n{}\n\n"
    'Remember to put your answer on its own line after "Answer:".'
)
GSM8K = {
    "train": [
        {
            "question": "Ann has 1,200 eggs and sells 3. How many are left?",
            "answer": "She has 1200-3=<<1200-3=1197>>1197.\n#### 1,197",
        },
        {"question": "Ben runs 2 miles a day. How far in a week?", "answer": "2*7=<<2*7=14>>14\n#### 14"},
        {"question": "A well is 5 m deep. At which height is its ground?", "answer": "Below 0.\n#### -5"},
    ],
    "test": [{"question": "Two pens cost 3 dollars. What does one cost?", "answer": "3/2=1.5\n#### 1.5"}],
}
DEEPSCALER = [
    {"problem": "Compute $\\frac{1}{4}+\\frac{1}{4}$.", "answer": "\\frac{1}{2}", "solution": "It is $\\frac12$."},
    {"problem": "Solve $x^2=9$.", "answer": "3,-3", "solution": ""},
    {"problem": "Which way is the sunrise?", "answer": "\\text{east}", "solution": "East."},
    {"problem": "Grüße: 90 Grad?", "answer": "90^\\circ", "solution": None},
]


def verl_row(problem: str, truth: str, index, source: str = "math_dapo") -> dict:
    """A row of DAPO-Math-17k's form."""
    return {
        "data_source": source,
        "prompt": [{"content": DAPO_PROMPT.format(problem), "role": "user"}],
        "ability": "MATH",
        "reward_model": {"ground_truth": truth, "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": index},
    }


DAPO = [
    verl_row("Find $a+b$ if $a=30$, $b=4$.", "34", "9a9b6eb4"),
    verl_row("How many primes are < 10?", "4", "b426d104"),
]
AIME = [verl_row("Every morning Aya walks $9$ km.", "204", 60), verl_row("Let $ABC$ be a triangle.", "113", 61)]
AIME_PLAIN = [
    {"ID": "2024-I-4", "Problem": "Jen enters a lottery.", "Solution": "1/115, so 116.", "Answer": 116},
    {"ID": "2024-II-1", "Problem": "In Aimeville there are 900 residents.", "Solution": "73.", "Answer": 73},
]


def write_parquet(path: Path, rows: list[dict]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def write_lines(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def write_array(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return path


def gsm8k_folder(folder: Path) -> Path:
    """As on the hub: two configurations of the same problems, in folders, and hidden files of a download."""
    for split, rows in GSM8K.items():
        write_parquet(folder / "main" / f"{split}-00000-of-00001.parquet", rows)
        write_parquet(folder / "socratic" / f"{split}-00000-of-00001.parquet", rows)
    write_array(folder / ".cache" / "huggingface" / "x.json", [{"not": "data"}])
    (folder / "README.md").write_text("GSM8K")
    return folder


def published(folder: Path) -> dict[str, Path]:
    """One file or folder for each form, by "SET FORM"."""
    return {
        "gsm8k hub": gsm8k_folder(folder / "gsm8k"),
        "gsm8k lines": write_lines(folder / "gh" / "train.jsonl", GSM8K["train"]),
        "deepscaler array": write_array(folder / "deepscaler.json", DEEPSCALER),
        "deepscaler lines": write_lines(folder / "deepscaler.jsonl", DEEPSCALER),
        "dapo-math parquet": write_parquet(folder / "data" / "dapo-math-17k.parquet", DAPO * 3),
        "aime verl": write_parquet(folder / "data" / "aime-2024.parquet", AIME * 2),
        "aime parquet": write_parquet(folder / "aime" / "train-00000-of-00001.parquet", AIME_PLAIN),
        "aime lines": write_lines(folder / "aime_2024_problems.jsonl", AIME_PLAIN),
    }
