"""These tests run vllm-ascend's own code, in the environment that scripts/ascend_venv.sh makes (docs/ascend.md)."""

import ctypes
import importlib.util
import os
from pathlib import Path

import pytest

# In the CPU environment, which has another torch, this folder is left out; run_tests.sh runs it in its own.
collect_ignore_glob = [] if importlib.util.find_spec("torch_npu") else ["test_*.py"]
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning")  # torch_npu's and its neighbours'


@pytest.fixture(name="unpinned")
def _unpinned():
    from verification_law import unpinned

    with unpinned():
        yield


@pytest.fixture(name="torchair")
def _torchair():
    """torchair, whose libraries find the stubs of CANN only where those are loaded already."""
    import torch_npu

    names = ("ge_runner", "fmk_parser", "acl_op_compiler", "acl_tdt_channel", "ascend_protobuf", "graph")
    for name in names:
        ctypes.CDLL(str(Path(torch_npu.__file__).parent / "lib" / f"lib{name}.so"), ctypes.RTLD_GLOBAL)
    import torchair

    return torchair
