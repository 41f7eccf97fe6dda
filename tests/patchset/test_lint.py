"""lint: each rule, by a patch that breaks it."""

import shutil
from pathlib import Path

import pytest
from patchset_lab import Lab

ROOT = Path(__file__).parents[2]


# The tests that a patch may name.
TESTS = """
class TestX:
    def test_y(self): ...
    @pytest.mark.parametrize("a", [1, 2])
    async def test_p(self, a): ...
@pytest.mark.parametrize("a", [1, 2])
class TestP:
    def test_y(self, a): ...
if True:
    def test_it(): ...
    @mark.skipif(False)
    def test_i():
        def test_inner(): ...
"""


@pytest.fixture
def clean(lab: Lab) -> Lab:
    """The lab, with the tests that its patches name, a package of its own, and Python in the patched files."""
    lab.write(lab.root, {"tests/x.py": TESTS, "tests/bad.py": "def f(:\n", "src/ours/sub/__init__.py": ""})
    lab.write(lab.root, {"src/ours/hook.py": "import os as operating\nLIMIT: int = 3\nif LIMIT:\n    def go(): ...\n"})
    for name in ("alpha", "beta"):
        for file in (lab.root / "patches" / name).glob("*.patch"):
            file.unlink()
    lab.add_patch("beta", 2, {"src/b.py": "x = 1\n"})
    (lab.root / "patches/beta/0002-fix-change.patch").rename(lab.root / "patches/beta/0001-fix-change.patch")
    # The base of the checkout is the upstream's first commit: make its file what the patch starts from.
    text = (lab.root / "patches/beta/0001-fix-change.patch").read_text()
    (lab.root / "patches/beta/0001-fix-change.patch").write_text(text.replace("src/b.py", "src/b.txt"))
    shutil.rmtree(lab.frameworks)
    return lab


def only(lab: Lab, added: str, feature: str = "fix", path: str = "src/m.py", more: str = "") -> Path:
    """Replace the series by one patch that adds a file."""
    for file in (lab.root / "patches/beta").glob("*.patch"):
        file.unlink()
    file = lab.add_patch("beta", 3, {path: added}, feature, more)
    return file.rename(file.with_name(f"0001-{feature}-change.patch"))


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_a_clean_series_is_counted(clean: Lab) -> None:
    only(clean, "x = 1\ny = 2\n")
    done = clean.ok("lint")
    assert "0001-fix-change.patch" in done.out and "+2 -0" in done.out and "beta, 1 patches" in done.out
    assert "beta: source absent, only its patch files were checked" in done.err
    clean.ok("fetch")
    assert clean.ok("lint").err == ""


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("Feature: fix\n", "", "has no trailer Feature"),
        ("Feature: fix", "Feature: fax", "Feature: fax: the lock has only sam, cpu, fix"),
        ("Feature: fix", "Feature: sam", "the file's name should be NNNN-sam-<what>.patch"),
        ("Tested-by: tests/x.py::test_it\n", "", "has no trailer Tested-by"),
        (
            "tests/x.py::",
            "tests/gone.py::",
            "Tested-by: tests/gone.py::test_it: there is no such test: tests/gone.py is missing",
        ),
        ("::test_it", "", "Tested-by: tests/x.py: it is a file, name one test in it: FILE::TEST"),
        (
            "tests/x.py::test_it",
            "tests/x.py::TestX::test_z",
            "TestX::test_z: there is no such test: tests/x.py has no test_z",
        ),
        ("::test_it", "::test_y", "::test_y: there is no such test: tests/x.py has no test_y"),
        ("::test_it", "::test_inner", "::test_inner: there is no such test"),
        ("x.py::test_it", "bad.py::test_y", "::test_y: tests/bad.py does not compile"),
        (
            "tests/x.py::test_it",
            "tests/x.py::TestX::test_p",
            "::test_p: it is parametrised, name one case of it: TEST[ID]",
        ),
        ("::test_it", "::TestP::test_y", "TestP::test_y: it is parametrised"),
        ("Inappropriate test", "Inappropriate", "Upstream-Status: Inappropriate: not Pending URL"),
        ("Inappropriate test", "Pending soon", "not Pending URL"),
        ("Inappropriate test", "Backport v1.2", "Backport COMMIT"),
        ("::test_it\n", "::test_it\nDepends-on: sam-more\n", "Depends-on: sam-more: no patch is called"),
        ("+x = 1\n", "+x = 1 \n", "src/m.py:1: blanks at the end of the line"),
        ("+x = 1\n", "+ \tx = 1\n", "src/m.py:1: blanks"),
    ],
)
def test_a_fault_of_one_patch_is_named(clean: Lab, old: str, new: str, named: str) -> None:
    edit(only(clean, "x = 1\n"), old, new)
    clean.refused(3, "lint", names=("patches/beta/0001-fix-change.patch: ", named))


@pytest.mark.parametrize(
    "status", ["Pending https://example.org/1", "Submitted https://example.org/2", "Backport 7a457c934 (#6086)"]
)
def test_what_is_right_passes(clean: Lab, status: str) -> None:
    edit(only(clean, "x = 1\n"), "Inappropriate test", status)
    clean.ok("lint")


@pytest.mark.parametrize("test", ["TestX::test_y", "TestX::test_p[1]", "TestP::test_y[a::b]", "test_i"])
def test_a_test_that_can_be_run(clean: Lab, test: str) -> None:
    edit(only(clean, "x = 1\n"), "tests/x.py::test_it", f"tests/x.py::{test}")
    clean.ok("lint")


def test_all_faults_are_named_at_once(clean: Lab) -> None:
    file = only(clean, "x = 1 \n")
    edit(file, "Feature: fix\n", "")
    message = clean.refused(3, "lint")
    assert "no trailer Feature" in message and "blanks" in message


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("from ours.hook import LIMIT, go", None),
        ("from ours.hook import (\n    operating as x,\n    go,\n)", None),
        ("from ours.hook import (  # noqa: F811\n    go,\n)", None),
        ("import ours.hook as h, os", None),
        ("from ours import sub, hook", None),
        ("    from elsewhere.hook import anything", None),
        ("from ours.hook import gone", "ours.hook.gone"),
        ("from ours.hook import (\n    go,\n    gone as x,\n)", "ours.hook.gone"),
        ("import ours.gone", "ours.gone"),
        ("if 1:\n    from ours.sub.deep import x", "ours.sub.deep.x"),
    ],
)
def test_names_that_hooks_import(clean: Lab, line: str, missing: str | None) -> None:
    only(clean, line + "\n")
    if missing:
        clean.refused(3, "lint", names=(f"src/m.py imports {missing}, which src/ does not have",))
    else:
        clean.ok("lint")


def test_patched_python_that_does_not_compile(clean: Lab) -> None:
    only(clean, "def f(:\n")
    clean.ok("fetch")
    clean.refused(3, "lint", names=("0001-fix-change.patch: beta/src/m.py does not compile",))


def test_a_gap_in_the_numbers(clean: Lab) -> None:
    file = only(clean, "x = 1\n")
    file.rename(file.with_name("0003-fix-change.patch"))
    clean.refused(3, "lint", names=("patches/beta: the numbers are [3], not 1 to 1",))


def test_a_patch_that_another_takes_back(clean: Lab) -> None:
    only(clean, "x = 1\nz = 1\n")
    clean.add_patch("beta", 2, {"src/m.py": "y = 1\nz = 1\n"})
    clean.ok("lint")
    clean.add_patch("beta", 3, {"src/m.py": "x = 1\nz = 1\n"})
    clean.refused(3, "lint", names=("0002-fix-change.patch: patches/beta/0003-fix-change.patch takes all of it back",))


def test_malformed_files_are_all_named(lab: Lab) -> None:
    for name in ("0001", "0002"):
        file = lab.root / f"patches/alpha/{name}-fix-change.patch"
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    lab.refused(3, "lint", names=("0001-fix-change.patch: has CRLF", "0002-fix-change.patch: has CRLF"))


def test_the_shipped_patches_are_clean(monkeypatch: pytest.MonkeyPatch, lab: Lab, tmp_path: Path) -> None:
    monkeypatch.setenv("FRAMEWORKS_DIR", str(tmp_path / "none"))
    lab.capsys.readouterr()
    from patchset.cli import main

    assert main(["--root", str(ROOT), "lint"]) == 0, lab.capsys.readouterr().err
