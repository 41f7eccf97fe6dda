"""GSM8K's reward: the number after the last ``####``, or in the last ``\\boxed{}``, equals the ground truth exactly."""

import re
from fractions import Fraction

from qwen3_rl.rewards.answers import stated_answer

HASHES = re.compile(r"####[ \t]*([^\n]*)")
LONGEST = 60
NUMBER = re.compile(
    r"(?P<sign>[-+]?)(?P<whole>\d{1,3}(?:,\d{3})+|\d+)?(?P<decimals>\.\d+)?(?:/(?P<under>\d+))?"
    r"\s*(?:%|percent)?(?P<unit>[^\d=]*)",
    re.ASCII,
)
LATEX_FRACTION = re.compile(r"\\[dt]?frac\{(\d+)\}\{(\d+)\}")
# Marks around a number that say nothing about its value, and the spaces between its thousands.
NOISE = re.compile(r"\\[!,;: ]|\\(?:text|mathrm|mathbf|textbf)\b|[$€£{}*\\]|(?<=\d) (?=\d{3}(?!\d))")


def read_number(text: str) -> Fraction | None:
    """The one number in ``text``, with separators, currency and a unit after it; None for none, several or a formula.

    A percentage is the number before its sign, as GSM8K's answers have it.
    """
    if len(text) > LONGEST:
        return None
    text = LATEX_FRACTION.sub(r"\1/\2", text.replace("\u2212", "-")).replace("{,}", ",")
    match = NUMBER.fullmatch(NOISE.sub("", text).strip().rstrip(".,"))
    if match is None or not (match["whole"] or match["decimals"]):
        return None
    if re.match(r"[-+/^(!]", match["unit"]):
        return None
    number = Fraction((match["whole"] or "0").replace(",", "") + (match["decimals"] or ""))
    under = int(match["under"] or 1)
    if under == 0:
        return None
    return (-number if match["sign"] == "-" else number) / under


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict | None = None, **kwargs
) -> float:
    """1.0 if the stated number is the ground truth, else 0.0. Fit for ``custom_reward_function``."""
    answer = stated_answer(solution_str, HASHES)
    number = None if answer is None else read_number(answer)
    return float(number is not None and number == read_number(str(ground_truth)))
