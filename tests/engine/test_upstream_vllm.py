"""vLLM's own tests of the parts that the patches touch, on the patched tree; upstream_vllm.txt says which."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from patchset.project import find_project

VLLM = find_project(None).path("vllm")
LISTED = [line for line in Path(__file__).with_name("upstream_vllm.txt").read_text().splitlines() if line[0] != "#"]


def test_upstreams_own_tests_pass(tmp_path):
    files = [line for line in LISTED if not line.startswith("- ")]
    left_out = {line.removeprefix("- ").partition("  # ")[0] for line in LISTED if line.startswith("- ")}
    report = tmp_path / "report.xml"
    done = subprocess.run(
        [
            # Without upstream's conftest.py, which imports packages that only tests of whole models need.
            *(sys.executable, "-m", "pytest", *files, "-q", "--noconftest", "-p", "no:cacheprovider"),
            *(f"--deselect={name}" for name in left_out),
            f"--junit-xml={report}",
        ],
        cwd=VLLM,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    assert len(cases) > 50
    assert [case.get("name") for case in cases if case.find("skipped") is not None] == []


def test_what_does_not_run_exists_and_has_a_reason():
    for line in LISTED:
        name, _, reason = line.removeprefix("- ").partition("  # ")
        assert (VLLM / name.partition("::")[0]).is_file(), name
        assert bool(reason) == line.startswith("- "), line
