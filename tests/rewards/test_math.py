"""The mathematical reward on hand-made hard cases, and on answers that try to hang, flood or escape it."""

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from qwen3_rl.rewards import equivalence
from qwen3_rl.rewards.math import compute_score

pytest.importorskip("math_verify", reason="needs build_project.sh --target cpu")


def score(response: str, truth: str) -> float:
    return compute_score("deepscaler", response, truth, {"index": 0})


# (ground truth, content of \boxed{})
EQUAL = [
    ("1/2", r"\frac{1}{2}"),
    ("0.5", r"\frac12"),
    (r"\dfrac{1}{2}", "1/2"),
    (r"-\frac{1}{2}", r"\frac{-1}{2}"),
    (r"1\frac{1}{2}", r"\frac{3}{2}"),
    (r"\frac13", "0.333333"),
    ("5", r"5\text{ cm}"),
    ("5", "5 cm"),
    (r"5 \text{ dollars}", "5"),
    ("12", r"12 \text{ square units}"),
    ("90", r"90^\circ"),
    ("50", r"50\%"),
    ("0.5", r"50\%"),
    (r"50\%", "50"),
    (r"\frac{1}{2}\%", r"0.5\%"),
    ("50", "50 percent"),
    ("10000", "10,000"),
    ("10,000", "10000"),
    ("1000000", "1{,}000{,}000"),
    ("11111100", r"11,\! 111,\! 100"),
    ("1000", "1 000"),
    ("-3", "\u22123"),
    ("18", "018"),
    (r"\$36", "36"),
    ("36", r"\$36.00"),
    ("5", "5."),
    ("5", "$5$"),
    ("5", r"\boxed{5}"),
    ("5", "x=5"),
    ("x=5", "5"),
    (r"\text{east}", "east"),
    (r"\text{(A)}", "A"),
    ("3", r"\textbf{3}"),
    ("1024", "2^{10}"),
    ("1500", r"1.5\times10^3"),
    (r"\sqrt{8}", r"2\sqrt{2}"),
    (r"11\sqrt2", r"11\sqrt{2}"),
    ("x^2+2x+1", "(x+1)^2"),
    ("1,2", "2,1"),
    (r"\{1,2\}", "1, 2"),
    (r"\pm 2", "2, -2"),
    ("(6,31,-1)", "(6, 31, -1)"),
    (r"x \in [-2,7]", "[-2,7]"),
    ("x>3", r"(3,\infty)"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
]
DIFFERENT = [
    ("1/2", "2/1"),
    ("0.33", r"\frac13"),
    ("5", "-5"),
    ("5", "5.1"),
    ("10", "10 or 11"),
    ("10", "10, 11"),
    ("1,2", "1"),
    ("(1,2)", "(2,1)"),
    ("[1,2]", "(1,2)"),
    (r"\text{east}", r"\text{west}"),
    ("3", "3x"),
    ("x+1", "x-1"),
    ("1000", "1 00"),
    ("5", ""),
    ("", ""),
    ("5", "$"),
    ("5", r"\text{unknown}"),
    ("5", r"x \leq 5"),
    ("5", "五"),
    ("5", "\x00"),
    ("5", "\ud800"),
    ("5", "line\nbreak"),
]


@pytest.mark.parametrize(("truth", "answer"), EQUAL)
def test_equal_answers(truth, answer):
    assert score(f"So it is \\boxed{{{answer}}}.", truth) == 1.0


@pytest.mark.parametrize(("truth", "answer"), DIFFERENT)
def test_different_answers(truth, answer):
    assert score(f"So it is \\boxed{{{answer}}}.", truth) == 0.0


@pytest.mark.parametrize(
    ("response", "truth", "expected"),
    [
        ("34", "34", 0.0),
        ("the answer is 34", "34", 0.0),
        ("text\nAnswer: 34", "34", 1.0),
        ("text\nAnswer: $34$.", "34", 1.0),
        ("**Answer:** 34", "34", 1.0),
        ("Answer: \\boxed{34}", "34", 1.0),
        ("\\boxed{33}\nAnswer: 34", "34", 1.0),
        ("Answer: 33\nso \\boxed{34}", "34", 1.0),
        ("Answer: 34\nAnswer: 35", "34", 0.0),
        ("\\boxed{33} or \\boxed{34}", "34", 1.0),
        ("\\boxed{34} or \\boxed{33}", "34", 0.0),
        ("\\boxed{\\{1,2\\}}", "\\{1,2\\}", 1.0),
        ("\\boxed{\\frac{1}{2}", "1/2", 0.0),
        ("\\boxed{1/2} so \\boxed{1/", "1/2", 0.0),
        ("<think>\\boxed{34}", "34", 0.0),
        ("<think>\\boxed{34}</think>", "34", 0.0),
        ("<think>\\boxed{33}</think>\\boxed{34}", "34", 1.0),
        ("thoughts</think>\\boxed{34}", "34", 1.0),
        ("<think></think><think>\\boxed{34}", "34", 0.0),
    ],
)
def test_where_the_answer_is_taken_from(response, truth, expected):
    assert score(response, truth) == expected


@pytest.fixture
def short_limit(monkeypatch):
    """Workers that allow 0.2 seconds, so that a test need not wait for the real limit."""
    monkeypatch.setattr(equivalence, "COMMAND", [*equivalence.COMMAND, "0.2"])
    equivalence._forget()
    yield
    equivalence._forget()


@pytest.mark.parametrize(
    "answer",
    [
        "{" * 400 + "5" + "}" * 400,
        "(" * 450 + "5" + ")" * 450,
        "\\frac{" * 120 + "1" + "}{2}" * 120,
        "-" * 999 + "1",
        "9**9**9**9",
        "\\int_0^1 e^{\\sin(x^x)} dx",
        "9" * 1_000_000,
        "{" * 500_000 + "5" + "}" * 500_000,
        "1," * 400 + "1",
    ],
    ids=lambda text: text[:20],
)
def test_hostile_answers_are_wrong(answer, short_limit):
    assert score(f"\\boxed{{{answer}}}", "7") == 0.0


ENDLESS = ["9^{9^{9^{9}}}", "99999999^{99999999}", "100000000!", "(x+y+z+w)^{200}", "\\sum_{i=1}^{10^{12}} i^i"]


def test_endless_answers_end_in_threads(short_limit):
    """More threads than workers, none of them the main one, as under veRL's executor; right answers stay right."""
    responses = [f"\\boxed{{{answer}}}" for answer in ENDLESS] + [f"\\boxed{{{n}+0}}" for n in range(8)]
    with ThreadPoolExecutor(12) as pool:
        scores = list(pool.map(lambda response: score(response, "7"), responses))
    assert scores == [0.0] * len(ENDLESS) + [float(n == 7) for n in range(8)]


def test_endless_answers_end_under_asyncio(short_limit):
    async def both() -> list[float]:
        loop = asyncio.get_running_loop()
        calls = [loop.run_in_executor(None, score, f"\\boxed{{{answer}}}", "8") for answer in (ENDLESS[0], "4+4")]
        return await asyncio.gather(*calls)

    assert asyncio.run(both()) == [0.0, 1.0]


def test_no_answer_is_run_as_python(tmp_path):
    mark = tmp_path / "mark"
    command = f"__import__('pathlib').Path('{mark}').touch()"
    for response in (f"\\boxed{{{command}}}", f"\\boxed{{\\text{{{command}}}}}", f"Answer: {command}"):
        assert score(response, "7") == 0.0
    assert not mark.exists()


def test_a_worker_that_was_killed_costs_no_answer():
    assert score("\\boxed{6+1}", "7") == 1.0
    worker = equivalence._idle.get()
    equivalence._idle.put(worker)
    worker.process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, worker.process.pid, os.WEXITED | os.WNOWAIT)
    assert score("\\boxed{5+2}", "7") == 1.0


def test_a_worker_that_cannot_start_is_no_wrong_answer(monkeypatch):
    monkeypatch.setattr(equivalence, "COMMAND", ["false"])
    equivalence._forget()
    with pytest.raises(RuntimeError, match="is math-verify installed"):
        score("\\boxed{3+4}", "7")
    equivalence._forget()


def test_workers_are_bounded_in_number():
    threads = [threading.Thread(target=score, args=(f"\\boxed{{{n}+1}}", "3")) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert equivalence._idle.qsize() <= equivalence.WORKERS
