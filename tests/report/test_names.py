"""The one set of names, and its list in the document."""

from collections import Counter
from pathlib import Path

from qwen3_rl.report.names import METRICS, markdown_table
from qwen3_rl.sam.metrics import PREFIX, StepMetrics

DOCUMENT = Path(__file__).parents[2] / "docs" / "comparing.md"


def test_the_document_lists_the_names():
    assert markdown_table() in DOCUMENT.read_text()


def test_a_name_means_one_thing():
    counts = Counter(name for metric in METRICS for name in metric.names)
    assert [name for name, count in counts.items() if count > 1] == []


def test_what_sam_logs_is_known():
    logged = StepMetrics().step([{"draft_tokens": 1}])
    assert {name for name in logged if name.startswith(PREFIX)} <= {metric.key for metric in METRICS}
