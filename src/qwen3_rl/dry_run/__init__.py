"""A train script checked without starting anything: its command resolved, its settings compared with each other."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing found. level: "error" (the run would fail or train something else), "warning" (it would be slower than
    it could be), "note" (could not be checked here)."""

    level: str
    what: str

    def __str__(self) -> str:
        return f"{self.level}: {self.what}"


def errors(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level == "error"]
