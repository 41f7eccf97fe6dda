"""The reward of DeepScaleR, DAPO-Math and AIME: the stated answer is mathematically equal to the ground truth."""

import re

from qwen3_rl.rewards.answers import stated_answer
from qwen3_rl.rewards.equivalence import equivalent

# Longer than any answer of the data sets; a longer one is wrong without being read.
LONGEST = 1000
SPACED_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?: \d{3})+")
PERCENT = re.compile(r"\s*(?:\\?%|percent)$")
WRAPPED = re.compile(r"\\(?:text|mathrm|mathbf|textbf)\{([^{}]*)\}")


def tidy(answer: str) -> str:
    """The formula alone: without dollar signs, a full stop at the end, a \\text{} around all, or spaced thousands."""
    answer = answer.replace("\\$", "").replace("$", "").strip().rstrip(".").strip()
    if whole := WRAPPED.fullmatch(answer):
        answer = whole[1].strip()
    return answer.replace(" ", "") if SPACED_THOUSANDS.fullmatch(answer) else answer


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict | None = None, **kwargs
) -> float:
    """1.0 if the stated answer equals the ground truth, else 0.0. Fit for ``custom_reward_function``.

    Equality is math-verify's, read from LaTeX, in at most equivalence.CPU_SECONDS of CPU time; an answer that takes
    longer is wrong.
    """
    answer = stated_answer(solution_str)
    if answer is None or len(answer) > LONGEST:
        return 0.0
    answer, truth = tidy(answer), tidy(str(ground_truth))
    if not answer or not truth:
        return 0.0
    if answer == truth or equivalent(truth, answer):
        return 1.0
    # A percentage is right as its value (50% = 0.5) and as the number before its sign.
    plain_answer, plain_truth = PERCENT.sub("", answer), PERCENT.sub("", truth)
    if plain_answer and (plain_answer, plain_truth) != (answer, truth):
        return float(plain_answer == plain_truth or equivalent(plain_truth, plain_answer))
    return 0.0
