"""The harness is vllm-ascend's own code on the NPU platform, and makes no result up."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch
import torch_npu
import vllm
import vllm_ascend
from vllm.platforms import current_platform

ROOT = Path(__file__).parents[2]
FRAMEWORKS = (ROOT / os.environ.get("FRAMEWORKS_DIR", "frameworks")).resolve()
# For a local run that is in a hurry: upstream's own tests take most of this folder's time.
SKIPPED = os.environ.get("SKIP_UPSTREAM_TESTS") == "1"
# Upstream's CI leaves these out of its own run on a CPU.
UPSTREAM_IGNORES = (
    "worker/test_worker_v1.py",
    "model_loader/netloader/test_netloader_elastic.py",
    "core/test_scheduler_dynamic_batch.py",
    "kv_connector/test_remote_prefill_lifecycle.py",
    "kv_connector/test_remote_decode_lifecycle.py",
    "kv_connector/test_mooncake_connector.py",
)


def test_vllm_takes_the_npu_platform():
    assert type(current_platform).__module__ == "vllm_ascend.platform"
    assert vllm.__version__ == "0.13.0"


@pytest.mark.skipif("PYTHONPATH" in os.environ, reason="another tree is under test")
def test_the_checkouts_are_used_in_place():
    for module, name in ((vllm, "vllm"), (vllm_ascend, "vllm-ascend")):
        assert Path(module.__file__).is_relative_to(FRAMEWORKS / name)


def test_there_is_no_device():
    assert not torch.npu.is_available()
    assert not torch.cuda.is_available()
    with pytest.raises(RuntimeError):
        torch.ones(1, device="npu")
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch_npu.npu_rms_norm(torch.ones(1, 4), torch.ones(4), 1e-6)


def test_cann_calls_raise():
    import acl

    with pytest.raises(RuntimeError, match=r"acl\.get_soc_name: there is no CANN"):
        acl.get_soc_name()
    with pytest.raises(RuntimeError, match=r"acl\.rt\.memcpy: there is no CANN"):
        acl.rt.memcpy(0, 0)


def upstream_tests(tree: Path, report: Path) -> subprocess.Popen:
    """Upstream's tests/ut in ``tree``, which is imported in place of the checkout."""
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "pytest", "tests/ut", "-q", "--timeout=60", "-p", "no:cacheprovider"),
            *(f"--ignore=tests/ut/{path}" for path in UPSTREAM_IGNORES),
            f"--junit-xml={report}",
        ],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.DEVNULL,
    )


def outcomes(report: Path) -> dict[str, str]:
    """{test id from tests.ut on: "passed", "skipped", "failure" or "error"}"""
    found = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        found[name[name.find("tests.ut") :]] = next((child.tag for child in case), "passed")
    return found


@pytest.mark.skipif("PYTHONPATH" in os.environ, reason="another tree is under test")
@pytest.mark.skipif(SKIPPED and not os.environ.get("CI"), reason="SKIP_UPSTREAM_TESTS=1, which a CI does not heed")
def test_what_passes_on_the_pristine_tree_passes_on_the_patched_one(tmp_path):
    pristine = tmp_path / "pristine"
    pristine.mkdir()
    checkout = FRAMEWORKS / "vllm-ascend"
    base = subprocess.run(["git", "-C", checkout, "archive", "patchset/base"], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", pristine], input=base, check=True)
    reports = {tree: tmp_path / f"{tree.name}.xml" for tree in (pristine, checkout)}
    for running in [upstream_tests(tree, report) for tree, report in reports.items()]:
        running.wait(timeout=1200)
    before, after = map(outcomes, reports.values())
    passed = {name for name, outcome in before.items() if outcome == "passed"}
    assert len(passed) >= 509  # v0.13.0's
    assert {name: after.get(name) for name in passed if after.get(name) != "passed"} == {}
