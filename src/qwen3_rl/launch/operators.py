"""MindSpeed's operators, compiled before Ray starts rather than by all ranks at once in the first step.

MindSpeed compiles an operator's C++ when it is first used (mindspeed/op_builder/builder.py at the pinned commit, over
torch.utils.cpp_extension, into TORCH_EXTENSIONS_DIR). What is there already is loaded only.

Run as a module with an operator builder's name, it compiles that one.
"""

import importlib.util
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from qwen3_rl.launch import processes

PACKAGE = "mindspeed.op_builder"
FOLDER = "operators"  # of the run folder: a log for each


def precompile(names: list[str], env: dict[str, str], logs: Path, seconds: float) -> Iterator[str]:
    """Compile MindSpeed's operators of these builders side by side; yields a line on each as it ends.

    Nothing where MindSpeed is not installed. A fault is a line, not an exception: the run may not need the operator.
    seconds: for all; what is not done by then is ended.
    """
    if not names or importlib.util.find_spec("mindspeed") is None:
        return
    logs.mkdir()
    jobs = str(max(1, (os.cpu_count() or 1) // len(names)))  # of ninja's, for each operator
    env = {**env, "MAX_JOBS": env.get("MAX_JOBS", jobs)}
    start = time.monotonic()
    running = {}
    for name in names:
        with (logs / f"{name}.log").open("wb") as log:
            running[name] = processes.start([sys.executable, "-P", "-m", __name__, name], env, log)
    while running:
        for name, process in list(running.items()):
            took = time.monotonic() - start
            if process.poll() is None and took < seconds:
                continue
            del running[name]
            log = logs / f"{name}.log"
            if process.poll() == 0:
                yield f"operator {name}: ready after {took:.0f} s"
            elif process.poll() is None:
                processes.signal_group(process, signal.SIGKILL)  # ninja and the compilers too
                process.wait()
                # torch waits for the lock of a compilation that was killed without end.
                cache = env.get("TORCH_EXTENSIONS_DIR") or "~/.cache/torch_extensions"
                yield f"warning: operator {name}: not compiled within {seconds:.0f} s; see {log}, and {cache}/**/lock"
            else:
                said = log.read_text(errors="replace").strip().splitlines() or ["no output"]
                last = "".join(filter(str.isprintable, said[-1]))
                yield f"warning: operator {name}: {last} (exit {process.returncode}; {log})"
        time.sleep(0.05)


def main() -> int:
    builder = getattr(importlib.import_module(PACKAGE), sys.argv[1], None)
    if builder is None:
        print(f"{PACKAGE} has no {sys.argv[1]}: take it out of MINDSPEED_OPERATORS")
        return 1
    builder().load()
    return 0


if __name__ == "__main__":
    sys.exit(main())
