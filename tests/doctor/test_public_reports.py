"""Every reported failure is caught, and its message says what to do."""

from pathlib import Path

import pytest
from doctor_lab import bad, findings, machine
from public_reports import REPORTS, Report


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: "-".join(report.url.split("/")[-3:]))
def test_a_reported_failure_is_caught(report: Report, tmp_path):
    found = bad(findings(machine("healthy", tmp_path / "machine", report.change), report.change))
    finding = found[report.check]
    assert finding.level is report.level
    assert finding.fix
    row = f"{finding.found} | {finding.expected} | {finding.fix}"
    assert all(word in row for word in report.words), row


def test_ten_at_least_from_different_threads():
    assert len({report.url for report in REPORTS}) == len(REPORTS) >= 10


def test_each_of_them_is_in_the_troubleshooting_guide():
    guide = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()
    assert [report.url for report in REPORTS if f"]({report.url})" not in guide] == []
