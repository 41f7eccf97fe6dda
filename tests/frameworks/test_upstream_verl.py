"""veRL's own CPU tests (tests/**/*_on_cpu.py): what passes on the pristine tree passes on the patched one."""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Collection
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


def run(commit: str, folder: Path, only: Collection[str] | None = None) -> dict[str, str]:
    """{test id: passed, failed or skipped} of veRL's CPU tests of ``commit`` on that commit's tree; ``only`` these."""
    tree = folder / "tree"
    tree.mkdir()
    archive = subprocess.run(["git", "-C", VERL, "archive", commit], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", tree], input=archive, check=True)
    tests = sorted(only or (str(path.relative_to(tree)) for path in tree.glob("tests/**/*_on_cpu.py")))
    report, output = folder / "report.xml", folder / "output.txt"
    # Ray's sockets are in TMPDIR, and their paths have at most 107 bytes.
    with tempfile.TemporaryDirectory() as temporary, output.open("w") as to:
        subprocess.run(
            [
                *(sys.executable, "-m", "pytest", *tests, "-q", "--timeout=300", "-p", "no:cacheprovider"),
                *("-o", "junit_family=xunit1", f"--junit-xml={report}", "--rootdir", str(tree)),
            ],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree), "HF_HUB_OFFLINE": "1", "TMPDIR": temporary},
            stdout=to,
            stderr=subprocess.STDOUT,
            timeout=800,
        )
    assert report.is_file(), output.read_text()[-3000:]
    found = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        tags = {child.tag for child in case}
        state = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
        module = case.get("file").removesuffix(".py").replace("/", ".")
        classes = case.get("classname").removeprefix(module).replace(".", "::")
        found[f"{case.get('file')}{classes}::{case.get('name')}"] = state
    return found


@pytest.fixture(scope="module")
def patched(tmp_path_factory):
    return run("patched", tmp_path_factory.mktemp("patched"))


def test_the_patched_tree_passes_what_the_pristine_passes(patched, tmp_path):
    assert len({test.partition("::")[0] for test in patched}) >= SDIST_FILES
    assert sum(state == "passed" for state in patched.values()) > 100
    gone = ["diff", "--name-only", "--diff-filter=D", "patchset/base", "patched", "--", "tests"]
    assert subprocess.run(["git", "-C", VERL, *gone], check=True, capture_output=True, text=True).stdout == ""
    not_passed = [test for test, state in patched.items() if state != "passed"]
    assert not_passed, "then the pristine tree passes them too: empty upstream_verl_failures.txt"
    pristine = run("patchset/base", tmp_path, not_passed)
    assert set(pristine) == set(not_passed)
    assert [test for test, state in pristine.items() if state == "passed"] == []


def test_what_upstream_fails_is_listed_with_a_reason(patched):
    listed = known_failures()
    assert all(listed.values())
    failing = {test for test, state in patched.items() if state == "failed"}
    if len({test.partition("::")[0] for test in patched}) > SDIST_FILES:
        pytest.skip("the list is of the sdist's tests; this checkout came from git, which has more")
    assert failing == set(listed)
