"""Fixtures: a plain environment, a repository with two frameworks, a package index."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from patchset_lab import LONG, Index, Lab


@pytest.fixture(autouse=True)
def plain_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A user with a git identity of their own and no proxies; what a command sets is undone."""
    (tmp_path / "gitconfig").write_text(
        "[user]\nname = Some One\nemail = one@example.org\n[protocol.file]\nallow = always\n"
    )
    with monkeypatch.context() as patch:
        for key in [key for key in os.environ if key.startswith("GIT_") or key.lower().endswith("_proxy")]:
            patch.delenv(key)
        for key in ("PIP_INDEX_URL", "PIP_CERT", "FRAMEWORKS_DIR", "PATCHSET_ROOT"):
            patch.delenv(key, raising=False)
        patch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
        before, handlers = dict(os.environ), {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)}
        yield
        os.environ.clear()
        os.environ.update(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


@pytest.fixture
def empty_lab(tmp_path: Path, capsys: pytest.CaptureFixture) -> Lab:
    """Two frameworks without patches."""
    lab = Lab(tmp_path, capsys)
    lab.add_framework("alpha", {"src/a.py": LONG, "src/gone.py": "old\n", "README": "alpha\n", ".gitignore": "*.log\n"})
    lab.add_framework("beta", {"src/b.py": LONG})
    return lab


@pytest.fixture
def lab(empty_lab: Lab) -> Lab:
    """Two frameworks with patches, fetched, nothing applied; the lock's hashes are right."""
    lab = empty_lab
    changed = LONG.replace("line 5\n", "line five\n")
    lab.add_patch("alpha", 1, {"src/a.py": changed, "src/new/made.py": "made\n"})
    lab.add_patch("alpha", 2, {"src/a.py": changed.replace("line 30\n", "line thirty\n"), "src/gone.py": None})
    lab.add_patch("beta", 1, {"src/b.py": LONG + "more\n", "src/run.log": "a log\n"})
    lab.ok("fetch")
    lab.ok("export")  # for the hashes in the lock
    return lab


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    server = Index()
    monkeypatch.setenv("PIP_INDEX_URL", server.url)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()
