"""These tests run vllm-ascend's own code, in the environment that scripts/ascend_venv.sh makes (docs/ascend.md)."""

import importlib.util
import os

import pytest

# In the CPU environment, which has another torch, this folder is left out; run_tests.sh runs it in its own.
collect_ignore_glob = [] if importlib.util.find_spec("torch_npu") else ["test_*.py"]
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning")  # torch_npu's and its neighbours'


@pytest.fixture
def unpinned(monkeypatch):
    """Pinned memory needs an accelerator's driver: the same tensors in ordinary memory."""
    import torch

    def without_pinning(make):
        return lambda *args, pin_memory=False, **kwargs: make(*args, **kwargs)

    for name in ("arange", "full", "ones", "tensor", "zeros"):
        monkeypatch.setattr(torch, name, without_pinning(getattr(torch, name)))
