"""How far the nodes' clocks are apart, from one question to each."""

from dataclasses import dataclass

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
