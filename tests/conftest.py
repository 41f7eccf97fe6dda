"""Which tests may run beside each other (pytest -n 2 --dist loadgroup, as run_tests.sh does)."""

from pathlib import Path

import pytest

# One after the other: a launcher refuses to start beside another one or beside any Ray, and looks for what is left.
RAY = {"e2e", "frameworks", "launch"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        # Else a file stays together, because its fixtures are made once for it.
        item.add_marker(pytest.mark.xdist_group("ray" if folder in RAY else str(item.path)))
