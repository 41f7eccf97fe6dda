"""These tests import the patched veRL: without build_project.sh --target cpu there is nothing to collect here."""

import os
from importlib.util import find_spec

# Before torch is imported, as the tiny job's env script does.
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

collect_ignore_glob = [] if find_spec("verl") else ["test_*.py"]
