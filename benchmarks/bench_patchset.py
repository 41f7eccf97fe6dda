"""How fast is patchset on the real stack? Side by side with plain `git am`, in one run; prints a Markdown table.

    python benchmarks/bench_patchset.py [--rounds N]

Works in a temporary folder on copies of what `frameworks/` holds; nothing there is changed. Ends with 1 if a limit is
missed.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from patchset.project import Project, find_project

IDENTITY = {"GIT_COMMITTER_NAME": "x", "GIT_COMMITTER_EMAIL": "x@y"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    project = find_project(None)
    with tempfile.TemporaryDirectory() as scratch:
        return measure(project, Path(scratch), rounds)


def measure(project: Project, scratch: Path, rounds: int) -> int:
    bundle, ours, plain = scratch / "all.bundle", scratch / "ours", scratch / "plain"
    run(project, project.frameworks, "bundle", "create", str(bundle))
    fetched = best(1, lambda: run(project, ours, "fetch", "--bundle", str(bundle)))
    names = [name for name in project.lock.frameworks if (ours / name).exists() and project.series[name]]
    for name in names:
        shutil.copytree(ours / name, plain / name, symlinks=True)

    def reset() -> None:
        run(project, ours, "unapply")
        for name in names:
            # Made anew each time: what was prepared once is found again.
            shutil.rmtree(ours / name / ".git/refs/patchset/stack", ignore_errors=True)
            git(plain / name, "checkout", "-q", "--detach", "patchset/base")

    def git_am() -> None:
        for name in names:
            git(plain / name, "am", "-q", *(str(project.root / patch.shown) for patch in project.series[name]))

    applied, am = [], []
    for _ in range(rounds):  # in turns, so that the machine's other load meets both
        reset()
        am.append(best(1, git_am))
        applied.append(best(1, lambda: run(project, ours, "apply")))
    count = sum(len(project.series[name]) for name in names)
    ratio = statistics.median(applied) / statistics.median(am)
    start = best(rounds, lambda: run(project, ours, "--help"))
    again = best(rounds, lambda: run(project, ours, "apply"))
    status = best(rounds, lambda: run(project, ours, "status"))
    verify = best(rounds, lambda: run(project, ours, "verify"))
    rows = [
        (f"plain git am of {count} patches on {len(names)} checkouts", f"{statistics.median(am):.2f} s", "", True),
        ("patchset apply of the same", f"{statistics.median(applied):.2f} s", "", True),
        ("of which Python's start and imports (patchset --help)", f"{start:.2f} s", "", True),
        ("their ratio", f"{ratio:.2f}", "at most 1.5", ratio <= 1.5),
        ("apply, nothing to do", f"{again:.2f} s", "under 1 s", again < 1),
        ("status", f"{status:.2f} s", "under 1 s", status < 1),
        ("verify", f"{verify:.2f} s", "", True),
        (
            f"fetch of {len(list(ours.iterdir()))} frameworks from a bundle",
            f"{fetched:.1f} s",
            "under 20 s",
            fetched < 20,
        ),
    ]
    print("| | measured | limit |\n|---|---|---|")
    for what, value, limit, good in rows:
        print(f"| {what} | {value} | {limit}{'' if good else ' MISSED'} |")
    print(
        f"\n{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; medians of {rounds} rounds; single commands: the best"
    )
    return 0 if all(good for *_, good in rows) else 1


def best(rounds: int, do: Callable[[], None]) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        do()
        times.append(time.perf_counter() - start)
    return min(times)


def run(project: Project, frameworks: Path, *args: str) -> None:
    """As a user does: a process of its own, Python's start included."""
    command = [sys.executable, "-m", "patchset", "--root", str(project.root), *args]
    env = {**os.environ, "FRAMEWORKS_DIR": str(frameworks)}
    subprocess.run(command, env=env, check=True, capture_output=True)


def git(where: Path, *args: str) -> None:
    subprocess.run(["git", *args], cwd=where, env={**os.environ, **IDENTITY}, check=True, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
