"""Another git at work in a checkout: its lock file stops a switch and is left alone."""

import os
import shutil

import pytest
from patchset_lab import Lab

REAL_GIT = shutil.which("git")


@pytest.mark.parametrize("lock", ["index.lock", "HEAD.lock", "refs/heads/patched.lock", "packed-refs.lock"])
def test_a_lock_of_another_git_is_named_and_left_alone(lab: Lab, lock: str) -> None:
    lab.ok("apply")
    before = lab.snapshot(), lab.heads()
    file = lab.frameworks / "beta/.git" / lock
    file.write_text("another git's\n")
    lab.refused(7, "unapply", names=(str(file), f"rm {file}"))
    assert file.read_text() == "another git's\n"
    assert (lab.snapshot(), lab.heads()) == before
    assert not (lab.frameworks / ".patchset-journal.json").exists()
    lab.ok("apply")  # nothing to do, so nothing is in the way
    file.unlink()
    lab.ok("unapply")


def test_a_lock_that_appears_during_the_switch_is_left_alone(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    (lab.top / "bin").mkdir()
    shim = lab.top / "bin/git"
    shim.write_text(
        "#!/bin/bash\n"
        'if [ "$1" = checkout ] && [[ $GIT_DIR == */beta/.git ]]; then echo other > "$GIT_DIR/index.lock"; fi\n'
        f'exec {REAL_GIT} "$@"\n'
    )
    shim.chmod(0o755)
    before = lab.snapshot(), lab.heads()
    lock = lab.frameworks / "beta/.git/index.lock"
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{shim.parent}:{os.environ['PATH']}")
        lab.refused(8, "apply", names=("index.lock",))
    assert lock.read_text() == "other\n"
    assert (lab.snapshot(), lab.heads()) == before
    assert set(lab.states().values()) == {"not applied"}
    lock.unlink()
    lab.ok("apply")
