"""export: a checkout's commits become patch files, the same bytes everywhere, and nothing is lost on the way."""

from pathlib import Path

import pytest
from patchset_lab import LONG, Lab, git

TRAILERS = "\n\nBecause.\n\nFeature: sam\nUpstream-Status: Inappropriate test\nTested-by: tests/x.py::test_it"
SHIPPED = Path(__file__).parents[2] / "patches"


def series(lab: Lab) -> dict[str, bytes]:
    """Every file below patches/."""
    folder = lab.root / "patches"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def commit(lab: Lab, name: str, files: dict[str, str], *args: str) -> None:
    lab.write(lab.frameworks / name, files)
    git(lab.frameworks / name, "add", "-A")
    git(lab.frameworks / name, "commit", "-q", *args)


@pytest.mark.parametrize("applied", [True, False])
def test_export_after_apply_changes_no_byte(lab: Lab, applied: bool) -> None:
    before = series(lab)
    if applied:
        lab.ok("apply")
    lab.ok("export", "--check")
    assert "byte for byte" in lab.ok("export").out
    assert series(lab) == before


def test_the_users_git_configuration_changes_no_byte(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.ok("apply")
    (tmp_path / "attributes").write_text("*.py diff=python\n")
    hostile = (
        "[diff]\nnoprefix = true\nmnemonicPrefix = true\nalgorithm = patience\ncontext = 7\nrenames = copies\n"
        "external = false\ninterHunkContext = 9\nindentHeuristic = false\nsuppressBlankEmpty = true\n"
        "[format]\nsubjectPrefix = WIP\nsignOff = true\nattach = true\nnumbered = true\nthread = deep\nnotes = true\n"
        'headers = "X-Odd: yes\\n"\nsuffix = .txt\nuseAutoBase = whenAble\nfrom = true\ncoverLetter = true\n'
        f"[core]\nquotePath = true\nabbrev = 5\nattributesFile = {tmp_path}/attributes\n[color]\nui = always\n"
        '[diff "python"]\nxfuncname = "^line 1"\n[log]\nshowSignature = true\n[i18n]\nlogOutputEncoding = latin1\n'
    )
    (tmp_path / "other").write_text("[user]\nname = X\nemail = x@y\n" + hostile)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "other"))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    with (lab.frameworks / "alpha/.git/config").open("a") as file:
        file.write(hostile)
    (lab.frameworks / "alpha/.git/info/attributes").write_text("*.py diff=python -text\n")
    lab.ok("export", "--check")


def test_a_new_commit_becomes_a_new_patch(lab: Lab) -> None:
    lab.ok("apply")
    before = series(lab)
    commit(lab, "beta", {"src/b.py": "first\n" + LONG + "more\n"}, "-m", "Rollout: größer, faster!" + TRAILERS)
    assert lab.states()["beta"] == "foreign"
    lab.refused(5, "export", "--check", names=("patches/beta/0002-sam-rollout-gr", "patches/stack.toml"))
    assert series(lab) == before
    assert lab.ok("export").out == "beta: wrote 0002-sam-rollout-gr-er-faster.patch\n"
    after = series(lab)
    assert {key for key in after if after[key] != before.get(key)} == {
        "beta/0002-sam-rollout-gr-er-faster.patch",
        "stack.toml",
    }
    assert set(lab.states().values()) == {"applied"}
    lab.assert_clean()
    files = lab.snapshot()
    lab.ok("unapply")
    lab.ok("apply")
    assert lab.snapshot() == files and b"first\n" in files["beta/src/b.py"]
    lab.ok("export", "--check")


def test_own_commits_upon_patches_whose_files_got_other_names(lab: Lab) -> None:
    """All these series are the same commits, of which the checkout knows several names."""
    lab.ok("apply")
    (old,) = (lab.root / "patches/beta").glob("*.patch")
    for what in ("this", "that", "other", "last"):
        old = old.rename(old.with_name(f"0001-sam-{what}.patch"))
        lab.ok("apply")
    commit(lab, "beta", {"src/b.py": "first\n" + LONG + "more\n"}, "-m", "More" + TRAILERS)
    lab.ok("export")
    assert sorted(path.name for path in old.parent.glob("*.patch")) == [old.name, "0002-sam-more.patch"]


def test_an_amended_patch_keeps_its_name(lab: Lab) -> None:
    lab.ok("apply")
    before = series(lab)
    commit(lab, "alpha", {"src/extra.py": "x\n"}, "--amend", "--no-edit")
    assert lab.ok("export").out == "alpha: wrote 0002-fix-change.patch\n"
    git(lab.frameworks / "alpha", "commit", "-q", "--amend", "-m", "Another subject" + TRAILERS.replace("sam", "fix"))
    lab.ok("export")
    assert series(lab).keys() == before.keys()
    assert b"Subject: [PATCH] Another subject" in series(lab)["alpha/0002-fix-change.patch"]
    assert set(lab.states().values()) == {"applied"}


def test_a_dropped_patch_is_removed_and_the_rest_renumbered(lab: Lab) -> None:
    lab.ok("apply")
    alpha = lab.frameworks / "alpha"
    git(alpha, "rebase", "-q", "--onto", "patchset/base", "patched~1", "patched")
    assert lab.ok("export").out.splitlines() == [
        "alpha: wrote 0001-fix-change.patch",
        "alpha: removed 0002-fix-change.patch",
    ]
    assert b"Change 2 of alpha" in series(lab)["alpha/0001-fix-change.patch"]
    # The last patch of a framework goes by removing its file: an empty checkout is one that is not applied.
    (lab.root / "patches/alpha/0001-fix-change.patch").unlink()
    lab.ok("export")
    assert b"patched_sha256" not in series(lab)["stack.toml"].split(b"beta")[0]
    lab.ok("apply")
    assert lab.states() == {"alpha": "no patches", "beta": "applied"}


def test_a_first_patch_of_a_framework(empty_lab: Lab) -> None:
    lab = empty_lab
    lab.ok("fetch")
    git(lab.frameworks / "beta", "checkout", "-q", "-b", "patched")
    commit(lab, "beta", {"src/b.py": "new\n"}, "-m", "first" + TRAILERS)
    assert lab.ok("export", "--only", "beta").out == "beta: wrote 0001-sam-first.patch\n"
    assert lab.states()["beta"] == "applied"


def test_a_hand_edited_patch_is_tidied(lab: Lab) -> None:
    """Where the checkout holds nothing of the maintainer's, the patch files count."""
    lab.ok("apply")
    file = lab.root / "patches/beta/0001-fix-change.patch"
    file.write_text(file.read_text().replace("+more\n", "+less\n").replace("@@ -38,3", "@@ -37,3"))
    assert lab.ok("export").out == "beta: wrote 0001-fix-change.patch\n"
    assert "@@ -38,3" in file.read_text() and "+less\n" in file.read_text()
    lab.ok("apply")
    assert (lab.frameworks / "beta/src/b.py").read_text().endswith("less\n")


def test_changes_on_both_sides_are_refused(lab: Lab) -> None:
    lab.ok("apply")
    file = lab.root / "patches/beta/0001-fix-change.patch"
    file.write_text(file.read_text().replace("+more\n", "+less\n"))
    lab.states()  # status prepares the edited series too
    commit(lab, "beta", {"src/b.py": "mine\n"}, "-m", "mine" + TRAILERS)
    before = series(lab)
    lab.refused(4, "export", names=("patches/beta has changed since it was applied", "git checkout -- patches/beta"))
    assert series(lab) == before


@pytest.mark.parametrize(
    ("do", "code", "named"),
    [
        ("echo mine >> src/b.py; git commit -q --allow-empty -m x", 4, "src/b.py is edited"),
        ("git commit -q --allow-empty -m 'x\n\nFeature: sam'", 3, "holds no `diff --git` line"),
        ("echo x > src/n; git add -A; git commit -qm 'x\n\nbody\n---\nmore'", 3, "a line `---`"),
        ("echo x > src/n; git add -A; git commit -qm x", 3, "'x' has no trailer Feature"),
        ("printf 'a\\0b' > src/n; git add -A; git commit -qm x", 3, "is binary"),
        ("git checkout -q --detach; git commit -q --allow-empty -m x", 4, "not on the branch patched"),
        ("git commit -q --allow-empty -m x; mkdir .git/rebase-merge", 4, "a git operation is under way"),
        ("git checkout -q --orphan o; git commit -qm x; git branch -qM patched", 4, "does not stand on patchset/base"),
        (
            "git checkout -q -b o; echo x>o; git add o; git commit -qm o; git checkout -q patched; "
            "git commit -q --allow-empty -m x; git merge -q --no-ff -m m o",
            4,
            "a merge cannot be a patch",
        ),
    ],
)  # fmt: skip
def test_what_cannot_become_a_patch(lab: Lab, do: str, code: int, named: str) -> None:
    import subprocess

    lab.ok("apply")
    subprocess.run(["bash", "-ec", do], cwd=lab.frameworks / "beta", check=True)
    before, head = series(lab), lab.head("beta")
    lab.refused(code, "export", names=(named,))
    assert (series(lab), lab.head("beta")) == (before, head)


def test_the_shipped_patches_are_exactly_what_export_writes() -> None:
    """As far as that can be seen without sources: the frame of every file is the exporter's."""
    files = sorted(SHIPPED.glob("*/*.patch"))
    assert files
    for file in files:
        text = file.read_text()
        assert text.startswith(f"From {'0' * 40} Mon Sep 17 00:00:00 2001\nFrom: ") and "\n-- \n" not in text
        assert "\n---\n" not in text and "diff --git" in text
