"""Imported at every start of the harness's Python, by ascend_harness.pth: what a build would have written or set.

The checkouts stay untouched: vllm/_version.py in them is another environment's, and vllm-ascend's _build_info.py exists
only after a build.
"""

import os
import sys
import types

# torch would load torch_npu by itself while it is still being imported.
os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")

# pip has compiled nothing (most of what is installed is never imported): what is imported must be compiled once only.
sys.dont_write_bytecode = False

version = types.ModuleType("vllm._version")
version.__version__, version.__version_tuple__ = "0.13.0", (0, 13, 0)
sys.modules[version.__name__] = version

build_info = types.ModuleType("vllm_ascend._build_info")
build_info.__device_type__ = "A2"
sys.modules[build_info.__name__] = build_info
