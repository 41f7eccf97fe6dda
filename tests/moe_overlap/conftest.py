"""Fixtures for the tests of expert weights between checkpoint, training and rollout."""

import os

import pytest

from tests.moe_overlap import tiny

os.environ.setdefault("OMP_NUM_THREADS", "1")
pytest.importorskip("torch", reason="needs build_project.sh --target cpu")


@pytest.fixture(scope="session")
def moe(tmp_path_factory):
    """A Hugging Face folder: 3 layers, 8 experts, 4 files."""
    return tiny.make_model(tmp_path_factory.mktemp("moe") / "hf")


@pytest.fixture(scope="session")
def converted(moe):
    """`moe` as a checkpoint of `qwen3-rl convert`."""
    return tiny.convert(moe, moe.parent / "mcore")


@pytest.fixture(scope="session")
def dense(tmp_path_factory):
    """A Hugging Face folder: a dense Qwen3 whose output layer is its embedding."""
    return tiny.make_model(tmp_path_factory.mktemp("dense") / "hf", experts=0, tied=True)
