"""rebase: every fate of a patch by its name, both sides of a conflict, and the way to a moved pin."""

import shutil

import pytest
from patchset_lab import LONG, Index, Lab, git

from patchset.rebase import UNKNOWN


def release(lab: Lab, files: dict[str, str | None], name: str = "alpha") -> str:
    """Tag 2.0 upstream: the first commit with these changes, as a release that knows nothing of our patches."""
    repo = lab.upstream(name)
    git(repo, "checkout", "-q", "-f", "-B", "release", lab.keys[name]["commit"].strip('"'))
    for path, text in files.items():
        if text is None:
            (repo / path).unlink()
        else:
            lab.write(repo, {path: text})
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "--allow-empty", "-m", "release")
    git(repo, "tag", "-a", "-m", "2.0", "v2.0")
    return git(repo, "rev-parse", "HEAD")


@pytest.fixture
def tagged(lab: Lab) -> Lab:
    for keys in lab.keys.values():
        keys["tag"] = '"v1.0"'
        keys["version"] = '"1.0"'
    lab.write_lock()
    lab.ok("export")
    lab.ok("apply")
    return lab


def fates(lab: Lab, code: int) -> tuple[list[str], str]:
    done = lab.run("rebase", "alpha", "--to", "2.0")
    assert done.code == code, done.err
    rows = [line for line in done.out.splitlines() if line.startswith("| 000")]
    return [row.split("|")[3].strip() for row in rows], done.out


@pytest.mark.parametrize(
    ("files", "code", "expected", "shown"),
    [
        ({"README": "new\n"}, 0, ["applies", "applies"], "base: git-"),
        ({"src/a.py": "first\n" + LONG}, 0, ["applies with offset"] * 2, "src/a.py, hunk 1 of 1: +1 lines"),
        (
            {"src/a.py": LONG.replace("line 5\n", "line five\n"), "src/new/made.py": "made\n"},
            0,
            ["already upstream", "applies"],
            "",
        ),
        (
            {"src/a.py": LONG.replace("line 5\n", "line V\n")},
            5,
            ["conflicts", "applies"],
            " line 4\n-line 5\n+line V\n line 6\n",
        ),
        (
            {"src/a.py": None, "lib/a.py": LONG},
            5,
            ["file gone", "file gone"],
            "src/a.py is gone; of that name: lib/a.py",
        ),
        ({"src/gone.py": None}, 5, ["applies", "file gone"], "src/gone.py is gone"),
        ({"src/new/made.py": "other\n"}, 5, ["conflicts", "applies"], "src/new/made.py"),
    ],
)
def test_fates(tagged: Lab, files: dict, code: int, expected: list[str], shown: str) -> None:
    release(tagged, files)
    before = tagged.snapshot(), (tagged.root / "patches/stack.toml").read_text()
    found, text = fates(tagged, code)
    assert found == expected and shown in text
    after = tagged.snapshot(), (tagged.root / "patches/stack.toml").read_text()
    assert {k: v for k, v in after[0].items() if not k.startswith(".rebase")} == before[0] and after[1] == before[1]
    assert set(tagged.states().values()) == {"applied"}


def test_a_moved_pin(tagged: Lab) -> None:
    commit = release(tagged, {"src/a.py": "first\n" + LONG})
    done = tagged.ok("rebase", "alpha", "--to", "2.0", "--write")
    alpha = tagged.frameworks / "alpha"
    assert f"pins alpha 2.0 now\nnext: move {alpha} away" in done.out
    lock = (tagged.root / "patches/stack.toml").read_text()
    assert 'version = "2.0"' in lock and f'commit = "{commit}"' in lock and 'tag = "v2.0"' in lock
    assert "# about beta" in lock and lock.count('version = "1.0"') == 1
    shutil.move(alpha, tagged.top / "old")
    shutil.move(tagged.frameworks / ".rebase-2.0/alpha", alpha)
    assert set(tagged.states().values()) == {"applied"}
    assert (alpha / "src/a.py").read_text().startswith("first\nline 1\n") and "line five" in (
        alpha / "src/a.py"
    ).read_text()
    tagged.ok("export", "--check")
    tagged.ok("verify")


def test_a_conflict_is_resolved_by_hand_and_exported(tagged: Lab) -> None:
    release(tagged, {"src/a.py": LONG.replace("line 5\n", "line V\n")})
    before = {path: path.read_bytes() for path in tagged.root.glob("patches/*/*")}
    there = tagged.frameworks / ".rebase-2.0/alpha"
    command = ("rebase", "alpha", "--to", "2.0", "--write")
    tagged.refused(5, *command, names=("a patch does not fit", str(there), "git am --continue"))
    assert "<<<<<<<" in (there / "src/a.py").read_text()
    tagged.refused(4, *command, names=("conflicts are being resolved (rebase-apply)",))
    git(there, "am", "--abort")
    tagged.refused(5, *command)
    assert {path: path.read_bytes() for path in tagged.root.glob("patches/*/*")} == before
    (there / "src/a.py").write_text(LONG.replace("line 5\n", "line five V\n"))
    git(there, "add", "-A")
    git(there, "am", "--continue")
    assert "alpha: wrote 0001-fix-change.patch" in tagged.ok(*command).out
    text = (tagged.root / "patches/alpha/0001-fix-change.patch").read_text()
    assert "-line V\n+line five V\n" in text
    shutil.rmtree(tagged.frameworks / "alpha")
    tagged.ok("fetch")
    tagged.ok("apply")
    assert "line thirty" in (tagged.frameworks / "alpha/src/a.py").read_text()


def test_what_is_upstream_already_is_dropped(tagged: Lab) -> None:
    release(tagged, {"src/a.py": LONG.replace("line 5\n", "line five\n"), "src/new/made.py": "made\n"})
    done = tagged.ok("rebase", "alpha", "--to", "2.0", "--write")
    assert "alpha: removed 0002-fix-change.patch" in done.out
    assert "Change 2" in (tagged.root / "patches/alpha/0001-fix-change.patch").read_text()


def test_an_sdist_alone(tagged: Lab, index: Index) -> None:
    """No git host: the index's sha256 is taken, and the commit has to be given."""
    files = {"src/a.py": LONG, "src/gone.py": "old\n"}
    file, sha256 = index.add_sdist("alpha", files)
    new_file, new_sha256 = index.add_sdist("alpha", {**files, "README": "2\n"}, "2.0")
    tagged.keys["alpha"] |= {
        "sources": '["file:///nowhere"]',
        "sdist": f'{{ project = "alpha", file = "{file}", sha256 = "{sha256}" }}',
    }
    tagged.write_lock()
    shutil.rmtree(tagged.frameworks / "alpha")
    tagged.ok("fetch")
    tagged.ok("export")
    found, text = fates(tagged, 0)
    assert found == ["applies", "applies"]
    assert f"{new_file}: sha256 {new_sha256} is what the package index says" in text and "file:///nowhere: " in text
    write = ("rebase", "alpha", "--to", "2.0", "--write")
    tagged.refused(6, *write, names=("its commit is not known", "git ls-remote file:///nowhere v2.0"))
    tagged.ok(*write, "--commit", "a" * 40)
    lock = (tagged.root / "patches/stack.toml").read_text()
    assert new_file in lock and new_sha256 in lock and sha256 not in lock and "a" * 40 in lock and UNKNOWN not in lock


def test_a_framework_without_patches(empty_lab: Lab) -> None:
    empty_lab.keys["alpha"]["tag"] = '"v1.0"'
    empty_lab.write_lock()
    release(empty_lab, {})
    done = empty_lab.ok("rebase", "alpha", "--to", "2.0")
    assert "There are no patches for alpha: only the pin would move." in done.out


@pytest.mark.parametrize(
    ("args", "code", "named"),
    [
        (("gamma", "--to", "2.0"), 2, "'gamma'"),
        (("alpha", "--to", "1.0"), 2, "is what patches/stack.toml pins"),
        (("alpha", "--to", "3.0"), 6, "has no tag v3.0"),
        (("alpha", "--to", "../../x"), 2, "'../../x'"),
        (("alpha", "--to", "2.0", "--commit", "xyz"), 2, "'xyz'"),
    ],
)
def test_what_cannot_be_tried(tagged: Lab, args: tuple[str, ...], code: int, named: str) -> None:
    tagged.refused(code, "rebase", *args, names=(named,))
