"""What an env script may do, and what reaches the train script."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qwen3_rl.launch.environment import source_environment

from .conftest import ROOT


def source(tmp_path, text: str) -> dict[str, str]:
    script = tmp_path / "env"  # also the name of a program on PATH
    script.write_text(text)
    return source_environment(script)


def test_exports_arrive_whatever_else_the_script_does(tmp_path):
    env = source(
        tmp_path,
        """
        echo noise; echo more >&2
        export LD_LIBRARY_PATH=/x:$LD_LIBRARY_PATH_NOT_SET
        export TEXT=$'two\nlines = "quoted"'
        not_exported=1
        train_script=/nowhere root=/nowhere
        cd /
        shift 5
        false
        [ -f /no/such/file ] && . /no/such/file
        """,
    )
    assert env["LD_LIBRARY_PATH"] == "/x:"
    assert env["TEXT"] == 'two\nlines = "quoted"'
    assert "not_exported" not in env
    assert "root" not in env


def test_cann_is_sourced_first_where_it_is(tmp_path, monkeypatch):
    monkeypatch.delenv("ASCEND_TOOLKIT_HOME", raising=False)
    monkeypatch.setenv("ASCEND_ROOT", str(tmp_path / "a root"))
    for name, line in (
        ("ascend-toolkit", "export ASCEND_TOOLKIT_HOME=/t"),
        ("nnal/atb", "export ATB=$ASCEND_TOOLKIT_HOME/a"),
    ):
        (tmp_path / "a root" / name).mkdir(parents=True)
        (tmp_path / "a root" / name / "set_env.sh").write_text(line)
    env = source(tmp_path, "export MINE=$ATB/b")
    assert env["MINE"] == "/t/a/b"
    monkeypatch.setenv("ASCEND_TOOLKIT_HOME", "/other")  # sourced by the user already
    assert "ATB" not in source(tmp_path, "")


def test_this_python_comes_first(tmp_path):
    first = f"{Path(sys.executable).parent}:"
    assert source(tmp_path, "export PATH=/usr/bin")["PATH"] == f"{first}/usr/bin"
    assert source(tmp_path, "unset PATH")["PATH"] == f"{first}{os.defpath}"


@pytest.mark.parametrize("path", ["/plain", "/with blank", "/ü (1),中", "/it's", "/a=b,[c]{d}#&~!;", "/tail:$x"])
def test_paths_survive_hydra(path):
    parser = pytest.importorskip("hydra.core.override_parser.overrides_parser", reason="needs build_project.sh")
    command = 'source "$1"; printf "key=%s" "$(hydra_quote "$2")"'
    quoted = subprocess.check_output(["bash", "-c", command, "bash", ROOT / "internal" / "hydra.sh", path], text=True)
    (override,) = parser.OverridesParser.create().parse_overrides([quoted])
    assert override.value() == path
