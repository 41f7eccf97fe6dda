"""Crashes in native code, from the logs of Ray's workers: the trainer's own error only says that an actor is gone."""

import re
from pathlib import Path

SIGNAL = re.compile(r"\*\*\* SIG(?!TERM)")  # a worker that is told to end while it starts says SIGTERM in the same form
BEFORE = 2  # a failed assertion in a library writes its reason before the signal
NATIVE, PYTHON = ("PC: @", "    @"), "  File "
FRAMES = 12


def crashes(ray_logs: Path) -> list[str]:
    """A text for each worker that crashed (SIGSEGV, SIGABRT, SIGBUS, ...): its actor and log, the last lines before,
    and the innermost native and Python frames.

    The form is Ray 2.49's (src/ray/util/logging.cc, absl's failure signal handler), then that of Python's faulthandler.
    """
    found = []
    for log in sorted(ray_logs.glob("worker-*.err")):
        lines = log.read_text(errors="replace").splitlines()
        first = next((i for i, line in enumerate(lines) if SIGNAL.match(line)), None)
        if first is not None:
            actors = [line.removeprefix(":actor_name:") for line in lines if line.startswith(":actor_name:")]
            before = [line for line in lines[:first] if not line.startswith(":")][-BEFORE:]
            frames = [[line for line in lines[first:] if line.startswith(kind)][:FRAMES] for kind in (NATIVE, PYTHON)]
            excerpt = "\n  ".join([*before, lines[first], *frames[0], *frames[1]])
            found.append(f"{actors[0] if actors else 'a Ray task'} crashed, see {log}:\n  {excerpt}")
    return found
