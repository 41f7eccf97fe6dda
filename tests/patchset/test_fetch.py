"""fetch: exact sources, never half of one, never a long wait for a dead host."""

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patchset_lab import Index, Lab, git

from patchset import gitsource

FILES = {
    "src/b.py": "one\n",
    "run.sh": "#!/bin/sh\n",
    "PKG-INFO": "x\n",
    ".gitignore": "*.log\n",
    "src/kept.log": "log\n",
}


def use_sdist(lab: Lab, index: Index, name: str, sources: list[str] | None = None) -> None:
    """Give a framework an sdist, and git sources that fail at once unless others are named."""
    file, sha256 = index.add_sdist(name, FILES)
    quoted = ", ".join(f'"{url}"' for url in sources or ["file:///nowhere/to/be/found"])
    lab.keys[name] |= {
        "sources": f"[{quoted}]",
        "sdist": f'{{ project = "{name}", file = "{file}", sha256 = "{sha256}" }}',
    }
    lab.write_lock()


def assert_nothing_left(lab: Lab, *names: str) -> None:
    for name in names:
        assert not (lab.frameworks / name).exists()
    assert not list(lab.frameworks.glob(".tmp-*")) and not list(lab.frameworks.glob(".cache/*.part"))


@pytest.fixture
def silent_host() -> Iterator[str]:
    """A host that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_git_source(empty_lab: Lab) -> None:
    lab = empty_lab
    # A later commit upstream changes nothing: the lock's commit is taken.
    git(lab.upstream("alpha"), "commit", "-q", "--allow-empty", "-m", "later")
    # Nor is there a history: the second commit of beta comes alone.
    git(lab.upstream("beta"), "commit", "-q", "--allow-empty", "-m", "second")
    lab.keys["beta"]["commit"] = f'"{git(lab.upstream("beta"), "rev-parse", "HEAD")}"'
    lab.write_lock()
    lab.ok("fetch")
    for name, keys in lab.keys.items():
        assert f'"{lab.head(name)}"' == keys["commit"]
        assert git(lab.frameworks / name, "rev-parse", "patchset/base") == lab.head(name)
        assert git(lab.frameworks / name, "rev-list", "--count", "HEAD") == "1"
    lab.assert_clean()
    assert_nothing_left(lab)


def test_a_finished_checkout_is_not_fetched_again(empty_lab: Lab) -> None:
    lab = empty_lab
    lab.ok("fetch")
    shutil.rmtree(lab.top / "upstream")
    done = lab.ok("fetch")
    assert "alpha: here: 1.0 is already here (git)" in done.out


def test_only(empty_lab: Lab) -> None:
    lab = empty_lab
    lab.ok("fetch", "--only", "beta")
    assert lab.states() == {"alpha": "absent", "beta": "no patches"}
    lab.refused(2, "fetch", "--only", "gamma", names=("'gamma'", "alpha, beta"))


def test_the_next_source_is_tried(empty_lab: Lab) -> None:
    lab = empty_lab
    wrong = lab.top / "wrong"
    git(lab.top, "init", "-q", "wrong")
    git(wrong, "commit", "-q", "--allow-empty", "-m", "another history")
    lab.keys["beta"]["sources"] = f'["file:///nowhere", "file://{wrong}", "file://{lab.upstream("beta")}"]'
    lab.write_lock()
    done = lab.ok("fetch")
    assert "'/nowhere' does not appear to be a git repository" in done.out
    assert f"beta: fetched: 1.0 from file://{lab.upstream('beta')}" in done.out


def test_submodules(empty_lab: Lab) -> None:
    lab = empty_lab
    repo = lab.upstream("beta")
    git(
        repo,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        f"file://{lab.upstream('alpha')}",
        "sub",
    )
    git(repo, "commit", "-qm", "with a submodule")
    lab.keys["beta"] |= {"commit": f'"{git(repo, "rev-parse", "HEAD")}"', "submodules": "true"}
    lab.write_lock()
    lab.ok("fetch")
    assert (lab.frameworks / "beta/sub/src/a.py").is_file()
    assert git(lab.frameworks / "beta/sub", "rev-parse", "HEAD") == git(lab.upstream("alpha"), "rev-parse", "HEAD")
    lab.ok("unapply")


def test_sdist(lab: Lab, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    use_sdist(lab, index, "beta")
    shutil.rmtree(lab.frameworks / "beta")
    done = lab.ok("fetch")
    beta = lab.frameworks / "beta"
    assert "beta: fetched: 1.0 from beta-1.0.tar.gz" in done.out
    assert {path: (beta / path).read_text() for path in FILES} == FILES
    assert os.access(beta / "run.sh", os.X_OK) and not os.access(beta / "PKG-INFO", os.X_OK)
    # An ignored file of the sdist is part of the base.
    assert git(beta, "status", "--porcelain", "--ignored") == "" and "src/kept.log" in git(beta, "ls-files")
    first = lab.head("beta")
    assert git(beta, "rev-parse", "patchset/base") == first
    assert "already here (sdist)" in lab.ok("fetch").out

    # The same commit in another place, at another time, from the cached file alone.
    shutil.rmtree(beta)
    index.files.clear()
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    before = os.umask(0o077)
    lab.ok("fetch", "--source", "sdist", "--only", "beta")
    os.umask(before)
    assert lab.head("beta") == first
    done = lab.run("fetch", "--source", "git", "--only", "beta")
    assert done.code == 4 and "made from sdist" in done.err


def test_source_git_does_not_take_the_sdist(empty_lab: Lab, index: Index) -> None:
    lab = empty_lab
    use_sdist(lab, index, "beta")
    done = lab.run("fetch", "--source", "git")
    assert done.code == 6 and "beta: failed" in done.err and not index.asked
    assert lab.states() == {"alpha": "no patches", "beta": "absent"}


def test_wrong_sha256(empty_lab: Lab, index: Index) -> None:
    lab = empty_lab
    use_sdist(lab, index, "beta")
    expected = lab.keys["beta"]["sdist"].split('"')[5]
    index.add_sdist("beta", {"src/b.py": "evil\n"})
    done = lab.run("fetch")
    assert done.code == 6
    assert f"beta-1.0.tar.gz: wrong sha256, thrown away: expected {expected}, got " in done.err
    assert not list(lab.frameworks.glob(".cache/*"))
    assert_nothing_left(lab, "beta")
    assert lab.states()["alpha"] == "no patches"
    # A damaged file in the cache is had anew.
    index.add_sdist("beta", FILES)
    (lab.frameworks / ".cache/beta-1.0.tar.gz").write_bytes(b"half of i")
    done = lab.ok("fetch")
    assert (
        f".cache/beta-1.0.tar.gz has sha256 {hashlib.sha256(b'half of i').hexdigest()}, expected {expected}" in done.out
    )
    assert (lab.frameworks / ".cache/beta-1.0.tar.gz.bad").read_bytes() == b"half of i"


@pytest.mark.parametrize("path", ["../evil.py", "../../../evil.py", "/evil.py", ".git/hooks/evil", "a\nb"])
def test_an_unsafe_sdist(empty_lab: Lab, index: Index, path: str) -> None:
    lab = empty_lab
    file, sha256 = index.add_sdist("beta", {path: "x\n"})
    use = f'{{ project = "beta", file = "{file}", sha256 = "{sha256}" }}'
    lab.keys["beta"] |= {"sources": '["file:///nowhere"]', "sdist": use}
    lab.write_lock()
    done = lab.run("fetch")
    assert done.code == 6 and "beta" in done.err
    assert_nothing_left(lab, "beta")
    assert not list(lab.top.rglob("evil*"))


def test_a_framework_without_any_source_is_absent(empty_lab: Lab) -> None:
    lab = empty_lab
    lab.keys["beta"]["sources"] = '["file:///nowhere"]'
    lab.write_lock()
    done = lab.ok("fetch")
    assert "beta: absent: no source could be reached" in done.err and "file:///nowhere: " in done.err
    assert "alpha: fetched" in done.out and "next: " in done.err
    assert lab.states() == {"alpha": "no patches", "beta": "absent"}
    assert lab.run("fetch", "--only", "beta").code == 6


def test_no_source_at_all(empty_lab: Lab, index: Index) -> None:
    lab = empty_lab
    use_sdist(lab, index, "beta")
    index.files.clear()
    done = lab.run("fetch")
    assert done.code == 6 and "beta: failed: no source could be had" in done.err
    assert "beta-1.0.tar.gz: " in done.err and "file:///nowhere/to/be/found: " in done.err


def test_an_index_that_refuses(empty_lab: Lab, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = empty_lab
    use_sdist(lab, index, "beta")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple/")
    done = lab.run("fetch")
    assert done.code == 6 and "refused" in done.err


def test_a_silent_host_is_given_up_once_for_all(
    empty_lab: Lab, index: Index, silent_host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gitsource.ANSWER_LIMIT == 10
    monkeypatch.setattr(gitsource, "ANSWER_LIMIT", 4.0)
    lab = empty_lab
    for name in lab.keys:
        use_sdist(lab, index, name, [f"http://{silent_host}/{name}", f"http://{silent_host}/mirror/{name}"])
    start = time.monotonic()
    done = lab.ok("fetch")
    assert 4 <= time.monotonic() - start < 8  # 8: one limit for each of the two addresses
    assert f"no answer from {silent_host} in 4 s" in done.out and f"{silent_host} does not answer" in done.out
    assert "alpha: fetched: 1.0 from alpha-1.0.tar.gz" in done.out


def test_a_folder_that_is_not_ours(empty_lab: Lab) -> None:
    lab = empty_lab
    lab.write(lab.frameworks, {"beta/precious": "mine\n"})
    done = lab.run("fetch")
    assert done.code == 4 and "frameworks/beta is not a checkout" in done.err
    assert (lab.frameworks / "beta/precious").read_text() == "mine\n"
    assert lab.states()["alpha"] == "no patches"


def test_leftovers_of_a_killed_fetch_are_removed(empty_lab: Lab) -> None:
    lab = empty_lab
    lab.write(lab.frameworks, {".tmp-alpha-xyz/src/a.py": "half\n", ".cache/x.tar.gz.part": "half"})
    lab.ok("fetch")
    assert_nothing_left(lab)
    lab.assert_clean()


@pytest.mark.parametrize("kind", ["sdist", "git"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_during_a_fetch(empty_lab: Lab, index: Index, silent_host: str, kind: str, number: int) -> None:
    lab = empty_lab
    use_sdist(lab, index, "beta", [f"http://{silent_host}/beta"] if kind == "git" else None)
    index.drip = 0.2
    process = lab.spawn("fetch", "--source", kind)
    deadline = time.monotonic() + 20
    waited_for = ".cache/*.part" if kind == "sdist" else ".tmp-beta-*/.git/HEAD"
    while not list(lab.frameworks.glob(waited_for)) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    start = time.monotonic()
    process.send_signal(number)
    done = lab.finish(process)
    assert time.monotonic() - start < 8
    assert done.code == 130 and "interrupted" in done.err
    assert_nothing_left(lab, "beta")
    # The helpers of git are dead, or about to be.
    deadline = time.monotonic() + 5
    while silent_host in subprocess.run(["ps", "-wweo", "args"], capture_output=True, text=True, check=True).stdout:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    index.drip = 0
    lab.ok("fetch", "--source", "sdist", "--only", "beta")


@pytest.mark.parametrize("stage", ["fast-import", "checkout"])
def test_ctrl_c_in_a_terminal_reaches_git_too(empty_lab: Lab, index: Index, stage: str) -> None:
    """No line about a git that failed: the user has ended it."""
    lab = empty_lab
    use_sdist(lab, index, "beta")
    (lab.top / "bin").mkdir()
    shim = lab.top / "bin/git"
    shim.write_text(
        f'#!/bin/bash\nif [ "$1" = {stage} ]; then : > "{lab.top}/now"; exec sleep 20; fi\n'
        f'exec {shutil.which("git")} "$@"\n'
    )
    shim.chmod(0o755)
    process = lab.spawn("fetch", "--only", "beta", group=0, PATH=f"{shim.parent}:{os.environ['PATH']}")
    while not (lab.top / "now").exists():
        time.sleep(0.02)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    done = lab.finish(process)
    assert done.code == 130 and "failed" not in done.out + done.err.replace("nowhere", "")
    assert_nothing_left(lab, "beta")


def tiny_disk(path: Path, kilobytes: int) -> bool:
    path.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", str(path)]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("kind", ["sdist", "git"])
def test_a_full_disk(empty_lab: Lab, index: Index, kind: str) -> None:
    lab = empty_lab
    noise = os.urandom(1_500_000).hex()
    if kind == "sdist":
        file, sha256 = index.add_sdist("beta", {"src/b.py": noise})
        use = f'{{ project = "beta", file = "{file}", sha256 = "{sha256}" }}'
        lab.keys["beta"] |= {"sources": '["file:///nowhere"]', "sdist": use}
    else:
        lab.write(lab.upstream("beta"), {"src/noise": noise})
        git(lab.upstream("beta"), "add", "-A")
        git(lab.upstream("beta"), "commit", "-qm", "noise")
        lab.keys["beta"]["commit"] = f'"{git(lab.upstream("beta"), "rev-parse", "HEAD")}"'
    lab.write_lock()
    if not tiny_disk(lab.frameworks, 1000):
        pytest.skip("no right to mount a small file system")
    try:
        lab.ok("fetch", "--only", "alpha")  # beside beta it would be without space too
        done = lab.run("fetch")
        assert done.code == 8 and "No space left on device" in done.err and "free some space" in done.err
        assert_nothing_left(lab, "beta")
        assert lab.states() == {"alpha": "no patches", "beta": "absent"}
    finally:
        subprocess.run(["umount", str(lab.frameworks)], check=True)


def test_what_an_sdist_generated_is_left_out(empty_lab: Lab, index: Index) -> None:
    lab = empty_lab
    use_sdist(lab, index, "alpha")
    lab.keys["alpha"]["sdist"] = lab.keys["alpha"]["sdist"].replace(
        " }", ', generated = ["PKG-INFO", "src/kept.log"] }'
    )
    lab.write_lock()
    lab.ok("fetch", "--only", "alpha")
    checkout = lab.frameworks / "alpha"
    assert set(git(checkout, "ls-files").splitlines()) == {*FILES} - {"PKG-INFO", "src/kept.log"}
    assert not (checkout / "PKG-INFO").exists()
