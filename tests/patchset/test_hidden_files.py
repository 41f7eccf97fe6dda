"""Files at which git was told not to look: an edit of one is seen all the same."""

import json

import pytest
from patchset_lab import Lab, git

FLAGS = ("assume-unchanged", "skip-worktree")


@pytest.mark.parametrize("flag", FLAGS)
def test_an_edit_of_a_hidden_file_is_seen(lab: Lab, flag: str) -> None:
    lab.ok("apply")
    beta = lab.frameworks / "beta"
    git(beta, "update-index", f"--{flag}", "src/b.py")
    command = f"git -C {beta} update-index --no-{flag} src/b.py"
    assert lab.states()["beta"] == "applied"  # it still is what it should be
    assert command in lab.ok("status").out
    (beta / "src/b.py").write_text("mine\n")
    assert lab.states()["beta"] == "drifted"
    found = json.loads(lab.ok("status", "--json").out)["frameworks"]["beta"]
    assert found["patches"][0]["files"] == ["src/b.py"] and command in found["problem"]
    assert "beta:" in lab.run("verify").out and lab.run("verify").code == 5
    lab.refused(4, "unapply", names=("beta/src/b.py is edited", command))
    assert (beta / "src/b.py").read_text() == "mine\n"


@pytest.mark.parametrize("flag", FLAGS)
def test_a_hidden_file_that_a_switch_would_skip(lab: Lab, flag: str) -> None:
    beta = lab.frameworks / "beta"
    git(beta, "update-index", f"--{flag}", "src/b.py")
    lab.refused(4, "apply", names=(f"git -C {beta} update-index --no-{flag} src/b.py",))
    git(beta, "update-index", f"--no-{flag}", "src/b.py")
    lab.ok("apply")
