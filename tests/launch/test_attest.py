"""attest: anything but the patched checkout is refused by name."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from patchset.project import Project
from patchset.status import FrameworkStatus, PatchStatus
from qwen3_rl.errors import UserError
from qwen3_rl.launch import attest

APPLIED = FrameworkStatus(
    "verl", "0.7.1", "applied", None, head="a" * 40, patches=[PatchStatus("0001-cpu-x.patch", "x", "applied")]
)


@pytest.fixture
def project(tmp_path):
    (tmp_path / "frameworks" / "verl" / "verl").mkdir(parents=True)
    return Project(tmp_path, tmp_path / "frameworks")


def imported_from(monkeypatch, folder: Path | None) -> None:
    monkeypatch.setattr(attest, "origin", lambda module: folder)


def test_the_patched_checkout_is_named_with_its_commit(project, monkeypatch):
    imported_from(monkeypatch, project.path("verl") / "verl")
    line = attest.check_import(project, APPLIED)
    assert "verl 0.7.1" in line
    assert "1 patches" in line
    assert "aaaaaaaaaaaa" in line


def test_another_install_is_refused(project, monkeypatch, tmp_path):
    imported_from(monkeypatch, tmp_path / "site-packages" / "verl")
    with pytest.raises(UserError, match="not the patched checkout"):
        attest.check_import(project, APPLIED)


@pytest.mark.parametrize("state", ["not applied", "drifted", "foreign", "outdated", "interrupted"])
def test_every_state_but_applied_is_refused(project, monkeypatch, state):
    imported_from(monkeypatch, project.path("verl") / "verl")
    changed = replace(APPLIED, state=state, edited=["verl/protocol.py"], next_step="patchset apply")
    with pytest.raises(UserError) as caught:
        attest.check_import(project, changed)
    assert state in caught.value.what
    assert "verl/protocol.py" in caught.value.what
    assert caught.value.exit_code == 1


def test_a_missing_framework_is_an_error_only_where_it_is_needed(project, monkeypatch):
    imported_from(monkeypatch, None)
    with pytest.raises(UserError, match="cannot import verl"):
        attest.check_import(project, APPLIED)
    assert attest.check_import(project, replace(APPLIED, name="mindspeed")) is None


def test_a_shadowing_package_on_pythonpath(tmp_path):
    pytest.importorskip("verl", reason="needs build_project.sh --target cpu")
    (tmp_path / "verl").mkdir()
    (tmp_path / "verl" / "__init__.py").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "qwen3_rl.cli", "attest"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert f"`import verl` takes {tmp_path}/verl" in done.stderr
    assert "Traceback" not in done.stderr
