"""These tests import the patched veRL: they need the environment that build_project.sh --target cpu makes."""

import os

import pytest

# Before torch is imported, as the tiny job's env script does.
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytest.importorskip("verl", reason="needs build_project.sh --target cpu")
