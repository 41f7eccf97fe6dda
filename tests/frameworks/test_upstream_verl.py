"""veRL's own CPU tests (tests/**/*_on_cpu.py): what passes on the pristine tree passes on the patched one."""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from patchset.project import find_project

pytest.importorskip("torch", reason="needs build_project.sh --target cpu")

VERL = find_project(None).path("verl")
SDIST_FILES = 12  # of the tag's 40: the sdist carries only the test folders that are packages
KNOWN_FAILURES = Path(__file__).with_name("upstream_verl_failures.txt")


def known_failures() -> dict[str, str]:
    """{test id: reason} of what upstream itself fails here."""
    lines = KNOWN_FAILURES.read_text().splitlines()
    entries = (line.partition("  # ") for line in lines if line and not line.startswith("#"))
    return {test: reason for test, _, reason in entries}


def start(commit: str, folder: Path, temporary: str) -> subprocess.Popen:
    """veRL's CPU tests of ``commit`` on that commit's tree, in a process of its own.

    temporary: a folder with a short path, since Ray's sockets in it have at most 107 bytes.
    """
    tree = folder / "tree"
    tree.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", VERL, "archive", commit], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", tree], input=archive, check=True)
    files = sorted(str(path.relative_to(tree)) for path in tree.glob("tests/**/*_on_cpu.py"))
    assert len(files) >= SDIST_FILES
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "pytest", *files, "-q", "--timeout=300", "-p", "no:cacheprovider"),
            *("-o", "junit_family=xunit1", f"--junit-xml={folder / 'report.xml'}", "--rootdir", str(tree)),
        ],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "HF_HUB_OFFLINE": "1", "TMPDIR": temporary},
        stdout=(folder / "output.txt").open("w"),
        stderr=subprocess.STDOUT,
    )


def outcomes(folder: Path) -> dict[str, str]:
    """{test id: passed, failed or skipped} of a finished run."""
    assert (folder / "report.xml").is_file(), (folder / "output.txt").read_text()[-3000:]
    found = {}
    for case in ElementTree.parse(folder / "report.xml").getroot().iter("testcase"):
        tags = {child.tag for child in case}
        state = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
        found[f"{case.get('file')}::{case.get('name')}"] = state
    return found


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    folders = {commit: tmp_path_factory.mktemp("upstream") for commit in ("patchset/base", "patched")}
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        given = zip(folders.items(), (first, second), strict=True)
        for process in [start(commit, folder, temporary) for (commit, folder), temporary in given]:
            process.wait(800)
    return outcomes(folders["patchset/base"]), outcomes(folders["patched"])


def test_the_patched_tree_passes_what_the_pristine_passes(trees):
    pristine, patched = trees
    passing = {test for test, state in pristine.items() if state == "passed"}
    assert len(passing) > 100
    assert {test: patched.get(test) for test in passing if patched.get(test) != "passed"} == {}


def test_what_upstream_fails_is_listed_with_a_reason(trees):
    listed = known_failures()
    assert all(listed.values())
    failing = {test for test, state in trees[0].items() if state == "failed"}
    if len({test.partition("::")[0] for test in trees[0]}) > SDIST_FILES:
        pytest.skip("the list is of the sdist's tests; this checkout came from git, which has more")
    assert failing == set(listed)
