"""why, list and verify: what is in a checkout, line by line, patch by patch, byte by byte."""

import re
from pathlib import Path

import pytest
from patchset_lab import LONG, Lab, git

from patchset.project import find_project
from patchset.verify import attestation
from patchset.why import markdown

ROOT = Path(__file__).parents[2]


def test_a_patched_line_names_its_patch(lab: Lab) -> None:
    lab.ok("apply")
    text = lab.ok("why", "alpha/src/a.py:5").out
    assert "line 5: patches/alpha/0001-fix-change.patch" in text and "Change 1 of alpha" in text
    assert all(each in text for each in ("Because.", "Feature: fix", "Upstream-Status: Inapp", "Tested-by: tests/x.py"))
    assert lab.ok("why", "alpha/src/a.py:6").out == "line 6: upstream's own, no patch touches it\n"


def test_a_whole_file(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.ok("apply")
    monkeypatch.chdir(lab.frameworks / "alpha/src")
    text = lab.ok("why", "a.py").out
    assert "line 5: patches/alpha/0001" in text and "line 30: patches/alpha/0002" in text
    assert "touches this file" in lab.ok("why", str(lab.frameworks / "alpha/README")).out


def test_a_removed_line_is_named_too(lab: Lab) -> None:
    lab.add_patch("beta", 2, {"src/b.py": LONG.replace("line 7\n", "") + "more\n"})
    lab.ok("export")
    lab.ok("apply")
    assert "only removes lines: patches/beta/0002-fix-change.patch" in lab.ok("why", "beta/src/b.py").out


def test_edits_and_commits_that_are_no_patch(lab: Lab) -> None:
    lab.ok("apply")
    beta = lab.frameworks / "beta"
    (beta / "src/b.py").write_text("mine\n" + (beta / "src/b.py").read_text())
    assert lab.ok("why", "beta/src/b.py:1").out == "line 1: an edit that is in no patch\n"
    assert "line 42: patches/beta/0001" in lab.ok("why", "beta/src/b.py:42").out
    git(beta, "commit", "-qam", "mine")
    assert "which is no patch of patches/beta" in lab.ok("why", "beta/src/b.py:1").out


def test_nothing_applied(lab: Lab) -> None:
    assert "upstream's own" in lab.ok("why", "beta/src/b.py:1").out


@pytest.mark.parametrize(
    "where", ["gone.py", "alpha/src/a.py:99", "alpha/src/a.py:0", "patches/stack.toml", "alpha/src"]
)
def test_what_is_no_line_of_a_checkout(lab: Lab, where: str) -> None:
    lab.refused(2, "why", where)


def test_list(lab: Lab) -> None:
    lines = lab.ok("list").out.splitlines()
    assert len(lines) == 3 and "alpha" in lines[0] and "0001-fix-change.patch" in lines[0] and "Change 1" in lines[0]


def test_the_documented_table_is_the_present_one() -> None:
    """If this fails: patchset list --markdown > docs/patches.md"""
    assert (ROOT / "docs/patches.md").read_text() == markdown(find_project(str(ROOT)))


def test_verify(lab: Lab) -> None:
    lab.refused(5, "verify", names=("alpha, beta",))
    lab.ok("apply")
    done = lab.ok("verify")
    assert done.out.count("right") == 2
    assert done.out.splitlines()[-1].startswith("patchset lock:")
    (lab.frameworks / "beta").rename(lab.top / "taken")
    assert "beta            absent" in lab.ok("verify").out


def test_verify_trusts_no_time_stamp_and_no_index(lab: Lab) -> None:
    import os

    lab.ok("apply")
    readme = lab.frameworks / "alpha/README"
    git(lab.frameworks / "alpha", "config", "core.trustctime", "false")
    git(lab.frameworks / "alpha", "config", "core.checkStat", "minimal")
    os.utime(readme, (1e9, 1e9))
    git(lab.frameworks / "alpha", "update-index", "--refresh")
    readme.write_text("ALPHA\n")  # the same length
    os.utime(readme, (1e9, 1e9))
    assert lab.states()["alpha"] == "applied"  # git's own belief
    assert "edited: README" in lab.run("verify").out


@pytest.mark.parametrize(
    ("do", "named"),
    [
        ("git commit -q --allow-empty -m x", None),
        ("echo x > README; git add README; git commit -qm x", "files that no patch touches differ: README"),
        ("echo x >> src/b.py; git commit -qam x", "not the patched files"),
        ("git tag -f patchset/base HEAD", "made of an unknown source"),
    ],
)
def test_verify_names_what_is_wrong(lab: Lab, do: str, named: str | None) -> None:
    import subprocess

    lab.ok("apply")
    subprocess.run(["bash", "-ec", do], cwd=lab.frameworks / "beta", check=True, capture_output=True)
    done = lab.run("verify")
    assert (done.code, named or "right" in done.out) == (5, named) if named else done.code == 0
    assert (named or "beta            right") in done.out


def test_a_prepared_commit_that_was_tampered_with_is_not_trusted(lab: Lab) -> None:
    lab.keys["beta"].pop("patched_sha256", None)
    lab.write_lock()
    lab.ok("apply")
    beta = lab.frameworks / "beta"
    lab.write(beta, {"src/b.py": "evil\n"})
    git(beta, "commit", "-qam", "evil")
    for ref in git(beta, "for-each-ref", "--format=%(refname)", "refs/patchset/stack").split():
        git(beta, "update-ref", ref, "HEAD")
    assert lab.states()["beta"] == "applied"
    assert "not the patched files" in lab.run("verify").out


def test_the_attestation_tells_trees_apart(lab: Lab) -> None:
    project = find_project(str(lab.root))
    seen = [attestation(project)]
    lab.ok("apply")
    seen.append(attestation(project))
    lab.write(lab.frameworks, {"beta/src/b.py": "mine\n"})
    seen.append(attestation(project))
    lab.write(lab.frameworks, {"alpha/README": "mine\n"})
    seen.append(attestation(project))
    (lab.frameworks / "beta").rename(lab.top / "taken")
    seen.append(attestation(project))
    assert len({tuple(each.items()) for each in seen}) == 5
    assert seen[1]["alpha"] in (lab.root / "patches/stack.toml").read_text() and len(seen[1]["alpha"]) == 12
    assert seen[3]["alpha"].startswith(seen[1]["alpha"] + "+") and seen[4]["beta"] == "absent"


def test_every_yes_of_the_comparison_names_a_test_that_exists() -> None:
    text = (ROOT / "docs/patchset-compared.md").read_text()
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ") and "patchset | quilt" not in line]
    assert len(rows) > 20
    for row in rows:
        file, _, name = re.fullmatch(r"yes: `(.+)`", row[1])[1].partition("::")
        assert f"def {name}(" in (Path(__file__).parent / file).read_text(), row[0]
        assert len(row) == 7
