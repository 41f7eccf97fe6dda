"""Where a response states its answer. Every function is linear in the response's length."""

import re

# In a model's answer line; DAPO's prompt asks for "Answer: $Answer" on a line of its own.
ANSWER_LINE = re.compile(r"^\W{0,9}(?:final )?answer[ *]{0,4}:[ *]{0,4}(\S.*)$", re.IGNORECASE | re.MULTILINE)
# An answer line is looked for in the end of a response only.
TAIL = 2000


def after_thinking(response: str) -> str:
    """What follows the last ``</think>``, or the whole response without one; nothing if a ``<think>`` is still open."""
    rest = response.rpartition("</think>")[2]
    return "" if "<think>" in rest else rest


def last_boxed(text: str) -> tuple[int, str] | None:
    r"""Position and content of the last ``\boxed{...}``; None if there is none or its braces are never closed."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    opening = start + len("\\boxed")
    for brace in re.finditer(r"\\.|[{}]", text[opening:], re.DOTALL):  # an escaped \{ or \} is no group
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if depth == 0:
            return start, text[opening + 1 : opening + brace.start()]
    return None


def last_match(pattern: re.Pattern, text: str) -> tuple[int, str] | None:
    """Position and first group of the last match in the end of ``text``."""
    offset = max(0, len(text) - TAIL)
    matches = list(pattern.finditer(text[offset:]))
    return (offset + matches[-1].start(), matches[-1].group(1)) if matches else None


def stated_answer(response: str, pattern: re.Pattern = ANSWER_LINE) -> str | None:
    r"""The answer that ``response`` ends with: its last ``\boxed{}`` or match of ``pattern``, whichever is later.

    None if there is none, or if the last ``\boxed{`` is cut off.
    """
    text = after_thinking(response)
    boxed = last_boxed(text)
    if boxed is None and "\\boxed{" in text:
        return None
    found = [place for place in (boxed, last_match(pattern, text)) if place]
    return max(found)[1].strip() if found else None
