"""The process behind ``equivalence``: reads ``[truth, answer]`` a line, writes ``true`` or ``false``; ends at a limit.

The limits are the kernel's: timers whose signals have their default action, which ends the process wherever it is,
and a limit on memory. No code of Python's has to run for them to hold.
"""

import json
import logging
import os
import resource
import signal
import sys

READY = b"ready\n"
# CPU time, so that a busy machine makes no answer wrong; the wall-clock limit is for a worker that sleeps.
CPU_SECONDS = 5.0
WALL_SECONDS = 60.0
MEMORY_BYTES = 2 << 30


def set_timers(cpu: float, wall: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, cpu)
    signal.setitimer(signal.ITIMER_REAL, wall)


def compare(truth: str, answer: str) -> bool:
    """math-verify's verdict on two LaTeX formulas, without its signals and without its reader of Python expressions."""
    from math_verify import LatexExtractionConfig, parse, verify

    def read(formula: str) -> list:
        targets = [LatexExtractionConfig()]
        return parse(f"${formula}$", targets, fallback_mode="no_fallback", parsing_timeout=None)

    return verify(read(truth), read(answer), timeout_seconds=None)


def main(cpu_seconds: float = CPU_SECONDS) -> None:
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what a library prints must not look like a reply
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ends with its caller, by the end of stdin
    for timer in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(timer, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.disable(logging.CRITICAL)
    compare(r"\frac{1}{2}", "0.5")  # loads the library and its grammar before any time is counted
    replies.write(READY)
    for line in sys.stdin:
        truth, answer = json.loads(line)
        set_timers(cpu_seconds, WALL_SECONDS)
        try:
            verdict = compare(truth, answer)
        except MemoryError:
            os._exit(1)
        except Exception:
            verdict = False
        set_timers(0, 0)
        replies.write(b"true\n" if verdict else b"false\n")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
