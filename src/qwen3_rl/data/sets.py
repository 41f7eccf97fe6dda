"""The published data sets: where each one's problem and answer are, and the prompt it is asked with.

The forms are those of openai/gsm8k (question, answer with ####), agentica-org/DeepScaleR-Preview-Dataset (problem,
answer), BytedTsinghua-SIA/DAPO-Math-17k and AIME-2024 (veRL's own form) and Maxwell-Jia/AIME_2024 (Problem, Answer).
"""

import hashlib
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from qwen3_rl.rewards.gsm8k import read_number

# The wording that each set's reward expects; DAPO's and AIME's is the one that DAPO-Math-17k was published with.
GSM8K_PROMPT = '{} Let\'s think step by step and output the final answer after "####".'
DEEPSCALER_PROMPT = "{} Let's think step by step and output the final answer within \\boxed{{}}."
DAPO_START = (
    "Solve the following math problem step by step. The last line of your response should be of the form "
    "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
DAPO_END = '\n\nRemember to put your answer on its own line after "Answer:".'


@dataclass(frozen=True)
class Item:
    """One row's ``problem`` as published, the ``prompt`` that the model gets, and the ``answer`` (empty: none)."""

    problem: str
    prompt: str
    answer: str

    def key(self) -> bytes:
        return problem_key(self.problem)


def problem_key(problem: str) -> bytes:
    """Equal for texts that differ in letter case, spaces or Unicode form alone; 16 bytes."""
    text = "".join(unicodedata.normalize("NFKC", problem).casefold().split())
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()


def bare_problem(prompt: str) -> str:
    """``prompt`` without DAPO's wording around it."""
    return prompt.removeprefix(DAPO_START).removesuffix(DAPO_END)


def from_gsm8k(row: dict) -> Item:
    problem = str(row["question"]).strip()
    answer = re.split(r"####", str(row["answer"]))
    number = answer[-1].strip().replace(",", "") if len(answer) > 1 else ""
    return Item(problem, GSM8K_PROMPT.format(problem), number if read_number(number) is not None else "")


def from_deepscaler(row: dict) -> Item:
    problem = str(row["problem"]).strip()
    return Item(problem, DEEPSCALER_PROMPT.format(problem), text_of(row["answer"]))


def from_dapo(row: dict) -> Item:
    """veRL's own form; any wording of the prompt is kept."""
    prompt = str(row["prompt"][-1]["content"])
    return Item(bare_problem(prompt).strip(), prompt, text_of(row["reward_model"]["ground_truth"]))


def from_aime(row: dict) -> Item:
    if "prompt" in row:
        return from_dapo(row)
    row = {name.lower(): value for name, value in row.items()}
    problem = str(row["problem"]).strip()
    return Item(problem, DAPO_START + problem + DAPO_END, text_of(row["answer"]))


def text_of(value) -> str:
    return "" if value is None else str(value).strip()


@dataclass(frozen=True)
class DataSet:
    """``data_source`` is what veRL's metrics are grouped by; ``split`` is None where the file's name tells it."""

    data_source: str
    hub: str
    split: str | None
    item: Callable[[dict], Item]

    def split_of(self, file: Path) -> str:
        return self.split or ("test" if re.search("test|val", file.stem) else "train")


SETS = {
    "gsm8k": DataSet("openai/gsm8k", "openai/gsm8k", None, from_gsm8k),
    "deepscaler": DataSet("deepscaler", "agentica-org/DeepScaleR-Preview-Dataset", "train", from_deepscaler),
    "dapo-math": DataSet("math_dapo", "BytedTsinghua-SIA/DAPO-Math-17k", "train", from_dapo),
    "aime": DataSet("aime_2024", "BytedTsinghua-SIA/AIME-2024", "test", from_aime),
}
