"""A kill at any point leaves the old or the new state, or one that status names and apply and unapply mend."""

import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest
from patchset_lab import Lab, git

from patchset import switch

REAL_GIT = shutil.which("git")

# Stands in for git: counts the calls and, at the chosen one, kills the program that called it, with what came before
# (`half`: a checkout that has written a half file and left its lock) as only trace.
SHIM = f"""#!/bin/bash
exec 8>>"$SHIM_COUNT"
flock 8
echo "$1" >&8
number=$(wc -l < "$SHIM_COUNT")
flock -u 8
if [ "$number" = "$SHIM_AT" ]; then
    # cat-file is a helper that stays until its caller has ended.
    [ "$SHIM_HOW" = after ] && [ "$1" != cat-file ] && {REAL_GIT} "$@"
    kill -9 $PPID
    exit 1
fi
if [ "$SHIM_HOW" = half ] && [ "$1" = checkout ] && [[ $GIT_DIR == *"/$SHIM_AT/"* ]]; then
    if [[ $GIT_DIR == */alpha/.git ]]; then
        {REAL_GIT} show "${{@: -1}}:src/a.py" | head -c 40 > "$GIT_WORK_TREE/src/a.py"
        mkdir -p "$GIT_WORK_TREE/src/new"; printf mad > "$GIT_WORK_TREE/src/new/made.py"
    else
        {REAL_GIT} show "${{@: -1}}:src/b.py" | head -c 40 > "$GIT_WORK_TREE/src/b.py"
    fi
    : > "$GIT_DIR/index.lock"
    kill -9 $PPID
    exit 1
fi
exec {REAL_GIT} "$@"
"""


@pytest.fixture
def shim(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "git").write_text(SHIM)
    (folder / "git").chmod(0o755)
    return folder


def killed(lab: Lab, shim: Path, command: str, at: object, how: str) -> bool:
    """Run a command that the shim kills; False if it came to its end."""
    count = shim / "count"
    count.unlink(missing_ok=True)
    path = f"{shim}:{os.environ['PATH']}"
    done = lab.finish(lab.spawn(command, PATH=path, SHIM_COUNT=str(count), SHIM_AT=str(at), SHIM_HOW=how))
    assert done.code in (0, -9), done.err
    with (lab.frameworks / ".patchset.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until the other checkout's git has ended too
    return done.code == -9


@pytest.mark.parametrize("command", ["apply", "unapply"])
def test_a_kill_after_every_call_of_git(lab: Lab, shim: Path, command: str) -> None:
    """Walks a real SIGKILL through a whole command: between two patches, before the journal, between two checkouts."""
    sides = {"unapply": (lab.snapshot(), lab.heads())}
    saved = lab.top / "saved"
    shutil.copytree(lab.frameworks, saved)
    lab.ok("apply")
    sides["apply"] = (lab.snapshot(), lab.heads())
    for name in lab.keys:  # without the prepared commits, so that they are made again
        for ref in git(saved / name, "for-each-ref", "--format=%(refname)", "refs/patchset/stack").split():
            git(saved / name, "update-ref", "-d", ref)
    if command == "unapply":
        shutil.rmtree(saved)
        shutil.copytree(lab.frameworks, saved)
    old, new = (sides[each] for each in (("unapply", "apply") if command == "apply" else ("apply", "unapply")))

    seen, at = set(), 1
    while True:
        shutil.rmtree(lab.frameworks)
        shutil.copytree(saved, lab.frameworks)
        if not killed(lab, shim, command, at, "after"):
            break
        state = lab.states()
        seen |= set(state.values())
        if "interrupted" not in state.values():
            assert (lab.snapshot(), lab.heads()) in (old, new)
        mended_by = "apply" if at % 4 == 1 else "unapply"
        lab.ok(mended_by)
        assert (lab.snapshot(), lab.heads()) == sides[mended_by], at
        lab.assert_clean()
        assert not switch.journal_path(_project(lab)).exists()
        at += 2  # every second call: half the time, and the order of the workers' calls varies anyway
    assert at > (20 if command == "apply" else 10)
    assert seen >= {"interrupted", "not applied" if command == "apply" else "applied"}


def _project(lab: Lab):
    from patchset.project import find_project

    return find_project(str(lab.root))


@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize("mended_by", ["apply", "unapply"])
def test_a_kill_in_the_middle_of_a_checkout(lab: Lab, shim: Path, name: str, mended_by: str) -> None:
    base = lab.snapshot(), lab.heads()
    assert killed(lab, shim, "apply", f"frameworks/{name}", "half")
    assert lab.states() == {"alpha": "interrupted", "beta": "interrupted"}
    assert "next: patchset apply" in lab.ok("status").out
    assert (lab.frameworks / name / ".git/index.lock").exists()
    if name == "alpha":
        assert (lab.frameworks / "alpha/src/new/made.py").read_text() == "mad"
    done = lab.ok(mended_by)
    assert "alpha: an earlier command was killed half-way" in done.out
    lab.assert_clean()
    lab.ok("unapply")
    assert (lab.snapshot(), lab.heads()) == base


def test_an_edit_after_an_interrupted_apply_is_not_lost(lab: Lab, shim: Path) -> None:
    assert killed(lab, shim, "apply", "frameworks/beta", "half")
    mine = lab.frameworks / "beta/src/b.py"
    mine.write_text("mine\n")
    for command in ("apply", "unapply"):
        lab.refused(4, command, names=("beta: a command was killed", "frameworks/beta/src/b.py", "move your copy"))
        assert mine.read_text() == "mine\n"
    assert "interrupted" in lab.states().values()
    mine.unlink()
    lab.write(lab.frameworks, {"alpha/README": "mine too\n"})  # no patch touches this one
    lab.refused(4, "apply", names=("alpha/README is edited",))
    assert (lab.frameworks / "alpha/README").read_text() == "mine too\n"


@pytest.mark.parametrize("commands", [("fetch", "apply"), ("apply", "fetch", "apply")])
def test_a_checkout_removed_after_an_interrupted_apply(lab: Lab, shim: Path, commands: tuple[str, ...]) -> None:
    """The plain way out: remove it, fetch it again."""
    assert killed(lab, shim, "apply", "frameworks/beta", "half")
    shutil.rmtree(lab.frameworks / "beta")
    for command in commands:
        lab.ok(command)
    assert set(lab.states().values()) == {"applied"}


def test_what_was_staged_after_an_interrupted_apply_stays(lab: Lab, shim: Path) -> None:
    assert killed(lab, shim, "apply", "frameworks/beta", "half")
    alpha = lab.frameworks / "alpha"
    (alpha / "README").write_text("mine\n")
    git(alpha, "add", "README")
    lab.refused(4, "apply", names=("alpha/README is edited",))
    assert git(alpha, "show", ":README") == "mine"
    assert git(alpha, "status", "--porcelain") == "M  README"


def test_a_commit_after_an_interrupted_apply_is_not_lost(lab: Lab, shim: Path) -> None:
    assert killed(lab, shim, "apply", "frameworks/beta", "half")
    git(lab.frameworks / "alpha", "commit", "-q", "--allow-empty", "-m", "mine")
    mine = lab.head("alpha")
    lab.refused(4, "unapply", names=("alpha: a command was killed", "HEAD was moved", "branch mine"))
    assert lab.head("alpha") == mine


def test_a_disk_that_is_full_while_switching(lab: Lab, shim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """git fails in the second checkout: the first one is put back too."""
    (shim / "git").write_text(
        f"#!/bin/bash\n"
        f'if [ "$1" = checkout ] && [[ $GIT_DIR == */beta/.git ]]; then\n'
        f'    printf lin > "$GIT_WORK_TREE/src/b.py"\n'
        f'    echo "error: unable to write file src/b.py: No space left on device" >&2; exit 128\nfi\n'
        f'exec {REAL_GIT} "$@"\n'
    )
    before = lab.snapshot(), lab.heads()
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{shim}:{os.environ['PATH']}")
        lab.refused(8, "apply", names=("No space left on device", "free some space on the disk"))
    assert (lab.snapshot(), lab.heads()) == before
    assert set(lab.states().values()) == {"not applied"}
    lab.assert_clean()


def test_a_disk_that_is_really_full(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    small = lab.top / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a small file system")
    try:
        saved = lab.top / "saved"
        lab.frameworks.rename(saved)
        lab.frameworks.symlink_to(small)
        shutil.copytree(saved, small, dirs_exist_ok=True)
        before = lab.snapshot(), lab.heads()
        lab.refused(8, "apply", names=("MiB are free", "free some space"))
        assert (lab.snapshot(), lab.heads()) == before
        # Where the rest is taken by somebody else in that very moment: whatever the room, the old state or a named one.
        monkeypatch.setattr(switch, "RESERVE", 0)
        for room in range(0, 80, 4):
            free = os.statvfs(small)
            (small / "filler").write_bytes(b"x" * max(0, free.f_bavail * free.f_frsize - room * 1024))
            done = lab.run("apply")
            if done.code == 0:
                break
            assert done.code == 8 and "next: free some space" in done.err, done
            (small / "filler").unlink()
            assert (lab.snapshot(), lab.heads()) == before or "interrupted" in lab.states().values()
            lab.ok("unapply")
            assert (lab.snapshot(), lab.heads()) == before
        assert room > 20 and set(lab.states().values()) == {"applied"}
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_during_apply_is_all_or_nothing(lab: Lab, shim: Path, number: int) -> None:
    """Ctrl-C in the middle of the switch waits for its end."""
    (shim / "git").write_text(
        f'#!/bin/bash\nif [ "$1" = checkout ]; then : > "{shim}/now"\n'
        f'for _ in {{1..600}}; do [ -e "{shim}/go" ] && break; sleep 0.1; done; fi\nexec {REAL_GIT} "$@"\n'
    )
    process = lab.spawn("apply", PATH=f"{shim}:{os.environ['PATH']}")
    while not (shim / "now").exists():
        time.sleep(0.02)
    assert json.loads(lab.ok("status", "--json").out)["frameworks"]["beta"]["state"] == "switching"
    process.send_signal(number)
    (shim / "go").touch()
    assert lab.finish(process).code == 130
    assert set(lab.states().values()) == {"applied"}


@pytest.mark.parametrize("call", ["checkout", "update-ref"])
def test_an_orphaned_git_is_waited_for(lab: Lab, shim: Path, call: str) -> None:
    """Only the Python process is killed; its git goes on for a while, and the next command waits for it."""
    lab.ok("apply")
    (shim / "git").write_text(
        f'#!/bin/bash\n[ "$1" = {call} ] && {{ kill -9 $PPID; sleep 1; }}\nexec {REAL_GIT} "$@"\n'
    )
    assert lab.finish(lab.spawn("unapply", PATH=f"{shim}:{os.environ['PATH']}")).code == -9
    start = time.monotonic()
    lab.ok("apply")
    assert time.monotonic() - start > 0.5
    assert set(lab.states().values()) == {"applied"}
    lab.assert_clean()


def test_file_modes_survive_a_mended_kill(lab: Lab, shim: Path) -> None:
    script = lab.frameworks / "alpha/src/a.py"
    mode = stat.S_IMODE(script.stat().st_mode)
    assert killed(lab, shim, "apply", "frameworks/alpha", "half")
    lab.ok("unapply")
    assert stat.S_IMODE(script.stat().st_mode) == mode
