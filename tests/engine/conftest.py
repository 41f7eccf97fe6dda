"""The real patched engine, in this process, with the tiny model."""

import gc
import os
import subprocess
import sys

import pytest

# Before torch is imported, as the tiny job's env script does.
for name, value in {
    "TORCHDYNAMO_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}.items():
    os.environ.setdefault(name, value)

SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}

pytest.importorskip("torch", reason="needs build_project.sh --target cpu")


@pytest.fixture(scope="module", autouse=True)
def settings():
    """For these tests alone: the jobs that other folders start must not inherit them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS.items():
            patch.setenv(name, os.environ.get(name, value))
        yield


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The folder of the tiny model."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    make = [sys.executable, "-m", "qwen3_rl.cli", "tiny-model", "--to", str(folder)]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture(autouse=True)
def engines_are_freed():
    """An engine is full of cycles."""
    yield
    gc.collect()
