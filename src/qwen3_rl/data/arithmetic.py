"""Small sums with a rule reward: a task that a tiny model with random weights learns something of within minutes."""

import numpy as np

DATA_SOURCE = "qwen3_rl/arithmetic"
LARGEST_SUM = 9


def build_rows(count: int, seed: int, split: str) -> list[dict]:
    """``count`` rows in veRL's dataset form: data_source, prompt, ability, reward_model, extra_info.

    Every sum is one digit, so that a right answer is two tokens: the digit and the end of the turn.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for index in range(count):
        total = int(rng.integers(0, LARGEST_SUM + 1))
        left = int(rng.integers(0, total + 1))
        rows.append(
            {
                "data_source": DATA_SOURCE,
                "prompt": [{"role": "user", "content": f"{left}+{total - left}="}],
                "ability": "math",
                "reward_model": {"style": "rule", "ground_truth": str(total)},
                "extra_info": {"split": split, "index": index},
            }
        )
    return rows


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: dict | None = None) -> float:
    """The rule reward, in [0, 1] (veRL's custom_reward_function signature).

    What counts is the first character: 0 unless it is a digit, else the closeness (1 - distance / 10) squared. The bare
    digit gets all of that, a longer text less the longer it is, down to a fifth: so there is a gradient to every part
    of a right answer, which are a digit, the right one, and the end of the turn.
    """
    first = solution_str[:1]
    if not first.isascii() or not first.isdigit():
        return 0.0
    closeness = (1 - abs(int(first) - int(ground_truth)) / (LARGEST_SUM + 1)) ** 2
    return closeness * (0.2 + 0.8 / len(solution_str))
