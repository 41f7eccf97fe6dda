"""How far the nodes' clocks are apart, from one question to each; and whether anything sets this one's."""

from collections.abc import Iterator
from dataclasses import dataclass

from qwen3_rl.doctor.findings import Case, Finding, ok, warning

LIMIT = 5.0  # seconds; logs and checkpoints of several nodes cannot be put in order beyond it


@dataclass(frozen=True)
class Answer:
    """A node's clock as the head saw it; all in seconds since the epoch, ``asked`` and ``answered`` by the head's."""

    asked: float
    said: float
    answered: float


def skew(answer: Answer) -> float:
    """Seconds that the node's clock is certainly off the head's; above 0 it is ahead, 0 if it may well be right.

    The node read its clock at some moment between question and answer; what that cannot explain is skew.
    """
    if answer.said > answer.answered:
        return answer.said - answer.answered
    return min(0.0, answer.said - answer.asked)


def skewed(answers: dict[str, Answer]) -> list[str]:
    """One line for each node whose clock is off by more than LIMIT."""
    off = {node: skew(answer) for node, answer in answers.items()}
    return [
        f"{node}: its clock is {abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} the head's "
        "(start chronyd or ntpd there)"
        for node, seconds in off.items()
        if abs(seconds) > LIMIT
    ]


def check_clock(case: Case) -> Iterator[Finding]:
    """Of several nodes each clock must be set by somebody. A container without systemd cannot say."""
    said = case.machine.run("timedatectl", "show", "--property=NTPSynchronized", "--value") if case.several else None
    if said == "yes\n":
        yield ok("clock", "synchronized")
    elif said == "no\n":
        fix = "timedatectl set-ntp true, or start chronyd, on every node"
        yield warning("clock", "not synchronized", "synchronized", f"logs of several nodes cannot be compared: {fix}")
