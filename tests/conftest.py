"""Which tests may run beside which, where run_tests.sh runs two at a time (pytest-xdist's groups)."""

import os
import signal
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# Ray's users one after the other: a launcher refuses a machine on which Ray runs already.
WITH_RAY = ("e2e", "launch", "frameworks/test_upstream_verl.py", "doctor/test_here.py")

# Before anything imports numba: vLLM's n-gram proposer leaves threads that spin beside later engines.
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

# A shell's background job ignores SIGINT, and under nohup SIGHUP: what the tests start would be deaf to them too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    if not config.pluginmanager.hasplugin("xdist"):
        return  # in the environment of tests/ascend
    for item in items:
        # A file's tests stay together, for its fixtures.
        item.add_marker(pytest.mark.xdist_group("ray" if _needs_ray(item) else str(item.path)))
    items.sort(key=_needs_ray, reverse=True)  # the longest group first


def _needs_ray(item):
    return item.path.relative_to(TESTS).as_posix().startswith(WITH_RAY)
