"""GSM8K's reward on hand-made hard cases."""

import pytest

from qwen3_rl.rewards.gsm8k import compute_score


def score(response: str, truth: str = "18") -> float:
    return compute_score("openai/gsm8k", response, truth, {"index": 0})


RIGHT = [
    ("9 * 2 = 18\n#### 18", "18"),
    ("#### 18.", "18"),
    ("#### $18.00", "18"),
    ("#### **18**", "18"),
    ("#### 18 dollars a day", "18"),
    ("#### 18 km/h", "18"),
    ("####18", "18"),
    ("#### 1,234", "1234"),
    ("#### 1 234", "1234"),
    ("#### 1{,}234", "1234"),
    ("#### 1234", "1,234"),
    ("#### 20%", "20"),
    ("#### 20\\%", "20"),
    ("#### 20 percent", "20"),
    ("#### -5", "-5"),
    ("#### \u22125", "-5"),
    ("#### -$5", "-5"),
    ("#### 0.75", "3/4"),
    ("#### 3/4", "0.75"),
    ("#### .5", "0.5"),
    ("#### \\frac{3}{4}", "0.75"),
    ("The answer is \\boxed{18}.", "18"),
    ("\\boxed{18\\text{ dollars}}", "18"),
    ("\\boxed{\\dfrac{3}{4}}", "3/4"),
    ("\\boxed{17}, no:\n#### 18", "18"),
    ("#### 17, no: \\boxed{18}", "18"),
    ("#### 17\nwait\n#### 18", "18"),
    ("<think>17? \\boxed{17}</think>\n#### 18", "18"),
    ("<think>a</think><think>b</think>#### 18", "18"),
]
WRONG = [
    "",
    "18",
    "The answer is 18",
    "#### ",
    "####\n18",
    "#### eighteen",
    "#### 19",
    "#### -18",
    "#### 1.8",
    "#### 180",
    "#### 1 8",
    "#### 18 or 19",
    "#### 17, 18",
    "#### 9*2",
    "#### 9+9",
    "#### 18!",
    "#### 18^2",
    "#### 18/0",
    "#### 18e0",
    "#### x=18",
    "#### 18\n#### 19",
    "\\boxed{18",
    "#### 18 \\boxed{",
    "\\boxed{18} \\boxed{19}",
    "<think>\n#### 18",
    "<think>#### 18</think> I do not know",
    "#### ١٨",
    "#### " + "9" * 100_000,
    "#### __import__('os').system('false')",
    "\\boxed{" * 200_000,
    "#### " * 200_000,
    "\\boxed{" + "{" * 500_000 + "18" + "}" * 500_000 + "}",
]


@pytest.mark.parametrize(("response", "truth"), RIGHT)
def test_right(response, truth):
    assert score(response, truth) == 1.0


@pytest.mark.parametrize("response", WRONG, ids=lambda text: text[:30])
def test_wrong(response):
    assert score(response) == 0.0
