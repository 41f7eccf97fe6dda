"""The harness is vllm-ascend's own code on the NPU platform, and makes no result up."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch_npu
import vllm
import vllm_ascend
from vllm.platforms import current_platform

ROOT = Path(__file__).parents[2]
FRAMEWORKS = (ROOT / os.environ.get("FRAMEWORKS_DIR", "frameworks")).resolve()
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


def test_upstreams_own_tests_pass_on_the_patched_tree():
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "tests/ut", "-q", "--timeout=60", "-p", "no:cacheprovider"),
            *(f"--ignore=tests/ut/{path}" for path in UPSTREAM_IGNORES),
        ],
        cwd=FRAMEWORKS / "vllm-ascend",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    (passed,) = re.findall(r"(\d+) passed", done.stdout.splitlines()[-1])
    assert int(passed) >= 509  # v0.13.0's
