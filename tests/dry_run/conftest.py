"""These tests import the patched veRL: they need the environment that build_project.sh --target cpu makes."""

import os

import pytest

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
pytest.importorskip("verl", reason="needs build_project.sh --target cpu")
