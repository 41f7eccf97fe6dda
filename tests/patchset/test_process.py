"""The command as a process: closed pipes, early signals, odd places."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from patchset_lab import Lab

from patchset import project
from patchset.errors import system_hint

SOURCE = Path(__file__).parents[2] / "src"


def test_a_pipe_that_nobody_reads(lab: Lab) -> None:
    process = lab.spawn("status")
    process.stdout.close()
    err = process.stderr.read()
    assert (process.wait(), err) == (141, "")


def test_an_import_that_is_interrupted() -> None:
    code = (
        "import sys\n"
        "class Stop:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'pydantic': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Stop())\n"
        "from patchset.__main__ import main\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 130 and done.stderr.startswith("error: interrupted\nnext: ")
    assert "Traceback" not in done.stderr


def test_the_command_starts_there() -> None:
    text = (SOURCE.parent / "pyproject.toml").read_text()
    assert 'patchset = "patchset.__main__:main"' in text


@pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
def test_no_patch_file(lab: Lab, kind: str) -> None:
    path = lab.root / "patches/beta/0007-x-y.patch"
    {"folder": path.mkdir, "link": lambda: path.symlink_to("nothing"), "pipe": lambda: os.mkfifo(path)}[kind]()
    lab.refused(3, "apply", names=("patches/beta/0007-x-y.patch", "is no file"))


@pytest.mark.parametrize("kind", ["file", "link"])
@pytest.mark.parametrize("command", ["status", "apply", "fetch"])
def test_no_frameworks_folder(empty_lab: Lab, kind: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = empty_lab.top / "place"
    if kind == "file":
        place.write_text("")
    else:
        place.symlink_to("nothing")
    monkeypatch.setenv("FRAMEWORKS_DIR", str(place))
    empty_lab.refused(2, command, names=(str(place), "FRAMEWORKS_DIR"))


def test_a_file_on_the_way_to_the_frameworks_folder(empty_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAMEWORKS_DIR", str(Path(__file__) / "x"))
    empty_lab.refused(8, "fetch", names=("test_process.py", "see what lies there"))


def test_hints() -> None:
    hints = {number: system_hint(OSError(number, "x")) for number in errno.errorcode}
    assert {number for number, hint in hints.items() if "space" in hint} == {errno.ENOSPC, errno.EDQUOT}
    assert {number for number, hint in hints.items() if "rights" in hint} == {errno.EROFS, errno.EACCES, errno.EPERM}
    assert "EIO" in hints[errno.EIO]


def test_a_hangup_that_is_ignored_stays_ignored(lab: Lab) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        lab.ok("status")
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("garbage", [b"\xff\xfe\x00", b"9" * 5000, "\u0665".encode(), b"4194304999", b"-1"])
def test_garbage_in_the_lock_file(lab: Lab, garbage: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "ORPHAN_WAIT", 0.2)
    with (lab.frameworks / ".patchset.lock").open("wb") as file:
        file.write(garbage)
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        lab.refused(7, "apply", names=("another patchset command (process unknown)",))
        lab.ok("status")
    lab.ok("apply")
