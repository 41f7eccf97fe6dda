import json

import pytest
from sam_traces import sibling_traces


@pytest.fixture
def trace_file(tmp_path):
    path = tmp_path / "traces.json"
    path.write_text(json.dumps(sibling_traces()))
    return path
