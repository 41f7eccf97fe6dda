"""Tests of expert weights between training and rollout; they need torch."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
