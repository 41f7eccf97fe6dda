"""status: every state by its name, for people and for programs."""

import json
import re
import shutil
from pathlib import Path

import pytest
from patchset_lab import Lab, git


def patches(lab: Lab, name: str) -> dict[str, tuple[str, list[str]]]:
    found = json.loads(lab.ok("status", "--json").out)["frameworks"][name]["patches"]
    return {each["name"][:4]: (each["state"], each["files"]) for each in found}


def test_before_and_after_apply(lab: Lab) -> None:
    assert lab.states() == {"alpha": "not applied", "beta": "not applied"}
    assert patches(lab, "alpha") == {"0001": ("not applied", []), "0002": ("not applied", [])}
    lab.ok("apply")
    assert lab.states() == {"alpha": "applied", "beta": "applied"}
    assert patches(lab, "alpha") == {"0001": ("applied", []), "0002": ("applied", [])}


def test_json_holds_what_a_program_needs(lab: Lab) -> None:
    lab.ok("apply")
    alpha = json.loads(lab.ok("status", "--json").out)["frameworks"]["alpha"]
    commit = lab.keys["alpha"]["commit"].strip('"')
    assert alpha["head"] == lab.head("alpha") and alpha["base"] == commit and alpha["source"] == f"git-{commit}"
    assert alpha["version"] == "1.0" and alpha["next_step"] is None
    assert alpha["patches"][1]["subject"] == "Change 2 of alpha"


def test_drift_names_the_files(lab: Lab) -> None:
    lab.ok("apply")
    alpha = lab.frameworks / "alpha"
    lab.write(alpha, {"src/new/made.py": "mine\n", "README": "mine\n"})
    assert lab.states() == {"alpha": "drifted", "beta": "applied"}
    assert patches(lab, "alpha") == {"0001": ("drifted", ["src/new/made.py"]), "0002": ("applied", [])}
    text = lab.ok("status").out
    assert "README" in text and "src/new/made.py" in text and f"next: git -C {alpha} diff" in text
    (alpha / "src/a.py").unlink()
    assert patches(lab, "alpha")["0002"] == ("drifted", ["src/a.py"])
    git(alpha, "checkout", "-q", "-f", "HEAD")
    assert lab.states()["alpha"] == "applied"


def test_foreign_commits(lab: Lab) -> None:
    lab.ok("apply")
    beta = lab.frameworks / "beta"
    lab.write(beta, {"src/b.py": "mine\n"})
    git(beta, "commit", "-qam", "mine")
    assert lab.states()["beta"] == "foreign"
    assert patches(lab, "beta") == {"0001": ("drifted", ["src/b.py"])}


def test_absent_and_no_patches(empty_lab: Lab) -> None:
    lab = empty_lab
    assert lab.states() == {"alpha": "absent", "beta": "absent"}
    assert not lab.frameworks.exists()
    assert "next: patchset fetch --only alpha" in lab.ok("status").out
    lab.ok("fetch")
    assert lab.states() == {"alpha": "no patches", "beta": "no patches"}


def test_a_series_that_no_longer_fits_what_is_applied(lab: Lab) -> None:
    lab.ok("apply")
    file = lab.root / "patches/alpha/0002-fix-change.patch"
    file.write_text(file.read_text().replace("\n line 29\n", "\n line 29 of old\n"))
    assert lab.states()["alpha"] == "outdated"
    assert "0002-fix-change.patch does not apply" in lab.ok("status").out


def test_status_changes_no_work_tree(lab: Lab) -> None:
    before = lab.snapshot(), lab.heads()
    lab.ok("status")
    assert (lab.snapshot(), lab.heads()) == before


@pytest.mark.parametrize("path", sorted(Path(__file__).parents[2].glob("src/patchset/*.py")))
def test_no_registry_is_named_in_the_code(path: Path) -> None:
    assert not re.search(r"https?://", path.read_text())


@pytest.mark.parametrize("damage", ["objects", "refs", "base"])
def test_one_damaged_checkout_hides_no_other(lab: Lab, damage: str) -> None:
    lab.ok("apply")
    beta = lab.frameworks / "beta"
    if damage == "base":
        (beta / ".git/refs/tags/patchset/base").write_text("")
    else:
        shutil.rmtree(beta / ".git" / damage)
        (beta / ".git" / damage).mkdir()
    assert lab.states()["alpha"] == "applied"
    found = json.loads(lab.ok("status", "--json").out)["frameworks"]["beta"]
    assert found["state"] in ("damaged", "foreign") and found["problem"]
    assert f"move {beta} away, then run: patchset fetch --only beta" in lab.ok("status").out
    done = lab.run("verify")
    assert done.code == 5 and "WRONG" in done.out and f" beta:{found['state']}" in done.out


def test_suggested_commands_are_quoted(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = lab.top / "with a blank"
    lab.frameworks.rename(moved)
    monkeypatch.setenv("FRAMEWORKS_DIR", str(moved))
    lab.ok("apply")
    (moved / "beta/src/b.py").write_text("mine\n")
    assert f"git -C '{moved}/beta' diff" in lab.ok("status").out


@pytest.mark.parametrize("command", ["status", "apply", "fetch", "verify", "lint", "list"])
def test_no_git(empty_lab: Lab, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(empty_lab.top))
        empty_lab.refused(8, command, names=("git was not found", "install git 2.31"))
