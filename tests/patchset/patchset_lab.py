"""A small world for the tools: upstream repositories, patch series, a lock, a package index; all in one folder."""

import gzip
import hashlib
import http.server
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from patchset.cli import main

PLATFORM = "\n".join(
    f'{key} = "1"' for key in ("python", "torch", "torch_npu", "transformers", "ray", "cann", "hdk", "image")
)
FEATURES = 'sam = "one"\ncpu = "two"\nfix = "three"\n'
FORMAT = ("--zero-commit", "--no-signature", "--no-stat", "--full-index", "-N")
LONG = "".join(f"line {i}\n" for i in range(1, 41))


def git(where: Path, *args: str, **kwargs) -> str:
    done = subprocess.run(["git", *args], cwd=where, check=True, text=True, capture_output=True, **kwargs)
    return done.stdout.strip()


@dataclass
class Done:
    """A finished command."""

    code: int
    out: str
    err: str


@dataclass
class Lab:
    """A repository with a lock and patches for the frameworks `alpha` (two patches) and `beta` (one)."""

    top: Path
    capsys: pytest.CaptureFixture
    keys: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.top / "root"

    @property
    def frameworks(self) -> Path:
        return self.root / "frameworks"

    def upstream(self, name: str) -> Path:
        return self.top / "upstream" / name

    def add_framework(self, name: str, files: dict[str, str]) -> None:
        repo = self.upstream(name)
        repo.mkdir(parents=True)
        git(repo, "init", "-q", "-b", "main")
        self.write(repo, files)
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", "Upstream")
        self.keys[name] = {
            "version": '"1.0"',
            "commit": f'"{git(repo, "rev-parse", "HEAD")}"',
            "sources": f'["file://{repo}"]',
            "paths": '["src/"]',
        }
        self.write_lock()

    @staticmethod
    def write(where: Path, files: dict[str, str]) -> None:
        for path, text in files.items():
            (where / path).parent.mkdir(parents=True, exist_ok=True)
            (where / path).write_text(text)

    def add_patch(
        self, name: str, number: int, files: dict[str, str | None], feature: str = "fix", more: str = ""
    ) -> Path:
        """Write the patch that brings the upstream (with the patches so far) to `files`; None deletes one.

        `more` are further trailer lines.
        """
        repo = self.upstream(name)
        for path, text in files.items():
            if text is None:
                (repo / path).unlink()
            else:
                self.write(repo, {path: text})
        git(repo, "add", "-A")
        trailers = f"Feature: {feature}\nUpstream-Status: Inappropriate test\nTested-by: tests/x.py::test_it{more}"
        when = f"2026-01-0{number}T12:00:00+02:00"
        git(repo, "commit", "-qm", f"Change {number} of {name}\n\nBecause.\n\n{trailers}", "--date", when)
        folder = self.root / "patches" / name
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{number:04}-{feature}-change.patch"
        text = subprocess.run(
            ["git", "format-patch", "-1", "--stdout", *FORMAT], cwd=repo, check=True, capture_output=True
        )
        file.write_bytes(text.stdout)
        return file

    def write_lock(self) -> None:
        text = f"# a comment\n[platform]\n{PLATFORM}\n[features]\n{FEATURES}"
        for name, keys in self.keys.items():
            text += f"\n# about {name}\n[frameworks.{name}]\n" + "".join(f"{k} = {v}\n" for k, v in keys.items())
        self.write(self.root / "patches", {"stack.toml": text})

    def run(self, *args: str) -> Done:
        """Run a command in this process."""
        self.capsys.readouterr()
        try:
            code = main(["--root", str(self.root), *args])
        except SystemExit as stopped:
            code = stopped.code
        out, err = self.capsys.readouterr()
        assert "Traceback" not in out + err
        return Done(code, out, err)

    def ok(self, *args: str) -> Done:
        done = self.run(*args)
        assert done.code == 0, done.err
        return done

    def refused(self, code: int, *args: str, names: tuple[str, ...] = ()) -> str:
        """Run a command that must fail with `code` and a message that holds all `names` and a next step."""
        done = self.run(*args)
        assert done.code == code, done
        assert "error: " in done.err and "next: " in done.err
        for name in names:
            assert name in done.err
        return done.err

    def spawn(self, *args: str, group: int | None = None, **env: str) -> subprocess.Popen:
        """Start a command as a process of its own (`group` 0: also of a group of its own, as a shell does)."""
        source = Path(__file__).parents[2] / "src"
        return subprocess.Popen(
            [sys.executable, "-m", "patchset", "--root", str(self.root), *args],
            env={**os.environ, "PYTHONPATH": str(source), **env},
            process_group=group,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, process: subprocess.Popen) -> Done:
        out, err = process.communicate(timeout=60)
        assert "Traceback" not in out + err
        return Done(process.returncode, out, err)

    def states(self) -> dict[str, str]:
        found = json.loads(self.ok("status", "--json").out)["frameworks"]
        return {name: each["state"] for name, each in found.items()}

    def head(self, name: str) -> str:
        return git(self.frameworks / name, "rev-parse", "HEAD")

    def heads(self) -> dict[str, str]:
        return {name: self.head(name) for name in self.keys}

    def snapshot(self) -> dict[str, bytes]:
        """Every file of every checkout, without git's own."""
        files = (path for path in self.frameworks.glob("*/**/*") if path.is_file() and ".git" not in path.parts)
        return {str(path.relative_to(self.frameworks)): path.read_bytes() for path in files}

    def assert_clean(self) -> None:
        for name in self.keys:
            assert git(self.frameworks / name, "status", "--porcelain", "--ignored") == ""
            current = git(self.frameworks / name, "branch", "--show-current")
            assert git(self.frameworks / name, "branch", "--format=%(refname:short)", "--list", "patched") == current


class Index(http.server.ThreadingHTTPServer):
    """A package index on the loopback device. `drip`: seconds between the bytes of a file."""

    daemon_threads = True
    drip = 0.0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/simple/"

    def handle_error(self, *_) -> None:
        """A client that was interrupted is no news."""

    def add_sdist(self, project: str, files: dict[str, str], version: str = "1.0") -> tuple[str, str]:
        """Serve an sdist of `files`; returns its file name and sha256."""
        packed = io.BytesIO()
        # Without the time, so that the same files have the same sha256.
        with (
            gzip.GzipFile(fileobj=packed, mode="w", mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w") as archive,
        ):
            for path, text in files.items():
                member = tarfile.TarInfo(f"{project}-{version}/{path}")
                member.size = len(text)
                member.mode = 0o755 if path.endswith(".sh") else 0o644
                archive.addfile(member, io.BytesIO(text.encode()))
        name = f"{project}-{version}.tar.gz"
        self.files[name] = packed.getvalue()
        return name, hashlib.sha256(packed.getvalue()).hexdigest()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        kind, name = self.path.strip("/").split("/")[0], self.path.strip("/").split("/")[-1]
        links = [
            f'<a href="/files/{file}#sha256={hashlib.sha256(data).hexdigest()}">{file}</a>'
            for file, data in self.server.files.items()
            if file.startswith(f"{name}-")
        ]
        content = self.server.files.get(name) if kind == "files" else ("".join(links).encode() or None)
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Type", "application/octet-stream" if kind == "files" else "text/html")
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        drip = self.server.drip if kind == "files" else 0
        for i in range(0, len(content or b""), 1 if drip else 1 << 20):
            self.wfile.write(content[i : i + (1 if drip else 1 << 20)])
            time.sleep(drip)

    def log_message(self, *_) -> None:
        pass
