"""Watching a log that grows."""

import os
import pty
import subprocess
import sys
import time
from datetime import datetime

import pytest

from qwen3_rl.cli import main
from qwen3_rl.report.watch import Follower, progress
from tests.report.run_logs import log, step_line, values


def follow(path, text: str, mode: str = "w") -> Follower:
    with path.open(mode) as file:
        file.write(text)
    follower = Follower(path)
    follower.read()
    return follower


def test_what_was_added_is_read_on(tmp_path):
    path = tmp_path / "train.log"
    follower = follow(path, log(range(1, 5)))
    assert follower.done  # 4 of 4
    line = step_line(5, values(5))
    for part in (line[:50], line[50:]):
        with path.open("a") as file:
            file.write(part)
        follower.read()
    assert follower.console.steps.training() == [1, 2, 3, 4, 5]


def test_a_log_that_is_written_anew_is_read_from_its_start(tmp_path):
    path = tmp_path / "train.log"
    follower = follow(path, log(range(1, 5)))
    path.write_text(log([1], seed=1))
    follower.read()
    assert follower.console.steps.training() == [1]
    other = tmp_path / "other"
    other.write_text(log(range(1, 9)))
    other.rename(path)
    follower.read()
    assert follower.console.steps.training() == list(range(1, 9))


def test_the_time_to_the_end(tmp_path):
    steps = "".join(step_line(s, values(s) | {"timing_s/step": 60.0 if s > 1 else 900.0}) for s in range(1, 5))
    follower = follow(tmp_path / "train.log", "Total training steps: 10\n" + steps)
    now = datetime(2026, 11, 30, 12, 0)
    assert progress(follower.console, now) == "step 4 of 10, 0:06:00 to go at 60.0 s a step, until 2026-11-30 12:06"
    assert not follower.done


@pytest.mark.parametrize(("total", "seconds"), [(999999999999999, 60.0), (10, 1e99), (10, 1e308), (10, float("nan"))])
def test_an_end_that_no_calendar_has(tmp_path, total, seconds):
    step = step_line(1, values(1) | {"timing_s/step": seconds})
    follower = follow(tmp_path / "train.log", f"Total training steps: {total}\n" + step)
    assert progress(follower.console, datetime(2026, 11, 30)) == f"step 1 of {total}"


def test_once(tmp_path, capsys):
    (tmp_path / "train.log").write_text(log(range(1, 31)))
    assert main(["watch", str(tmp_path), "--rows", "3", "--once"]) == 0
    shown = capsys.readouterr().out
    assert "step 30 of 30, 0:00:00 to go" in shown
    assert f"{values(28)['critic/rewards/mean']:.4g}" in shown
    assert f"{values(27)['critic/rewards/mean']:.4g}" not in shown


@pytest.mark.parametrize(
    ("content", "said"), [(None, "is no file"), (b"\x1f\x8b\x08", "is packed"), (b"", "no step yet")]
)
def test_nothing_to_watch(tmp_path, capsys, content, said):
    path = tmp_path / "train.log"
    if content is not None:
        path.write_bytes(content)
    assert main(["watch", str(path), "--once"]) == (0 if content == b"" else 2)
    captured = capsys.readouterr()
    assert said in captured.out + captured.err


def test_live_in_a_terminal(tmp_path):
    """The table grows with the log, and the command ends with the job's last step."""
    path = tmp_path / "train.log"
    path.write_text("Total training steps: 2\n" + step_line(1, values(1)))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "qwen3_rl.cli", "watch", str(path)]
    process = subprocess.Popen(command, stdout=theirs, env={**os.environ, "TERM": "xterm", "COLUMNS": "150"})
    os.close(theirs)
    shown = b""
    try:
        while b"step 1 of 2" not in shown:
            shown += os.read(ours, 4096)
        assert process.poll() is None
        with path.open("a") as file:
            file.write(step_line(2, values(2)))
        while b"step 2 of 2" not in shown:
            shown += os.read(ours, 4096)
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
