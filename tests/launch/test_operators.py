"""MindSpeed's operators before Ray starts, and who holds the NPUs; the package and npu-smi are doubles."""

import os
import re
import stat
import sys
import time

import psutil
import pytest

from qwen3_rl.errors import UserError
from qwen3_rl.launch.operators import precompile
from qwen3_rl.launch.run import say_npu_processes
from qwen3_rl.launch.settings import read_settings

BUILDERS = """
import os, pathlib, subprocess, sys, time
class Good:
    def load(self):
        pathlib.Path(os.environ["TORCH_EXTENSIONS_DIR"], "good").write_text(os.environ["MAX_JOBS"])
class Bad:
    def load(self):
        print("c++ -o gmm.so")
        raise RuntimeError("Error building extension 'gmm'")
class Stuck:
    def load(self):
        compiler = subprocess.Popen(["sleep", "60"])
        pathlib.Path(os.environ["TORCH_EXTENSIONS_DIR"], "compiler").write_text(str(compiler.pid))
        time.sleep(60)
class Coloured:
    def load(self):
        sys.exit("\\x1b[31mno compiler\\x07")
"""


@pytest.fixture
def mindspeed(tmp_path, monkeypatch):
    """An environment in which `mindspeed` can be imported."""
    (tmp_path / "mindspeed").mkdir()
    (tmp_path / "mindspeed/__init__.py").touch()
    (tmp_path / "mindspeed/op_builder.py").write_text(BUILDERS)
    monkeypatch.syspath_prepend(tmp_path)
    return {**os.environ, "PYTHONPATH": str(tmp_path), "TORCH_EXTENSIONS_DIR": str(tmp_path)}


def test_each_is_compiled_or_named_with_its_error(mindspeed, tmp_path):
    lines = sorted(precompile(["Good", "Bad", "Lost"], mindspeed, tmp_path / "logs", 60))
    assert lines[0].startswith("operator Good: ready after ")
    assert lines[1] == (
        f"warning: operator Bad: RuntimeError: Error building extension 'gmm' (exit 1; {tmp_path}/logs/Bad.log)"
    )
    assert "has no Lost: take it out of MINDSPEED_OPERATORS" in lines[2]
    assert (tmp_path / "good").read_text().isdigit()  # ninja's processes are shared out
    assert "c++ -o gmm.so" in (tmp_path / "logs/Bad.log").read_text()


def test_one_that_never_ends_is_ended_and_its_lock_named(mindspeed, tmp_path):
    (line,) = precompile(["Stuck"], mindspeed, tmp_path / "logs", 3)
    assert line.startswith("warning: operator Stuck: not compiled within 3 s; see ")
    assert line.endswith(f"{tmp_path}/**/lock")
    compiler = int((tmp_path / "compiler").read_text())
    for _ in range(100):  # until whoever adopted it has collected it
        if not psutil.pid_exists(compiler) or psutil.Process(compiler).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.05)
    raise AssertionError("its compiler still runs")


def test_the_quoted_line_does_not_steer_the_terminal(mindspeed, tmp_path):
    (line,) = precompile(["Coloured"], mindspeed, tmp_path / "logs", 60)
    assert line.startswith("warning: operator Coloured: [31mno compiler (exit 1; ")


@pytest.mark.skipif("mindspeed" in sys.modules, reason="MindSpeed is installed")
def test_nothing_without_mindspeed(tmp_path):
    assert list(precompile(["Good"], dict(os.environ), tmp_path / "logs", 1)) == []
    assert not (tmp_path / "logs").exists()


def test_none_means_none():
    assert read_settings({"MINDSPEED_OPERATORS": "none"}).operators() == []
    assert "GMMOpBuilder" in read_settings({}).operators()
    assert read_settings({"MINDSPEED_OPERATORS": "B A B"}).operators() == ["B", "A"]


@pytest.mark.parametrize("name", ["../x", "a/b", "A,B", "-c"])
def test_what_is_no_name(name):
    with pytest.raises(UserError, match=f"MINDSPEED_OPERATORS='Good {re.escape(name)}': .*'{re.escape(name)}' is no"):
        read_settings({"MINDSPEED_OPERATORS": f"Good {name}"})


PROCESSES = """
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
| 0       0                 | 4711          | ray::WorkerDict          | 51234                   |
"""


def test_who_holds_npus_is_named(tmp_path, monkeypatch, capfd):
    tool = tmp_path / "npu-smi"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{PROCESSES}\nEND\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    say_npu_processes(dict(os.environ))
    assert "warning: processes hold NPUs of this machine: 4711 (ray::WorkerDict, NPU 0 chip 0, 51234 MB)" in (
        capfd.readouterr().err
    )
