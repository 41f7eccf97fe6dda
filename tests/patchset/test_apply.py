"""apply and unapply: the result is exact and the same everywhere; whatever would lose work is refused by name."""

import os
import subprocess
import time
from pathlib import Path

import pytest
from patchset_lab import LONG, Lab, git

from patchset import project


def test_apply_unapply_apply(lab: Lab) -> None:
    pristine, bases = lab.snapshot(), lab.heads()
    assert lab.ok("apply").out == "alpha: applied\nbeta: applied\n"
    patched, tips = lab.snapshot(), lab.heads()
    assert b"line five\n" in patched["alpha/src/a.py"] and b"line thirty\n" in patched["alpha/src/a.py"]
    assert "alpha/src/gone.py" not in patched and patched["alpha/src/new/made.py"] == b"made\n"
    assert git(lab.frameworks / "alpha", "rev-parse", "--abbrev-ref", "HEAD") == "patched"
    assert git(lab.frameworks / "alpha", "log", "--format=%an|%aI|%s|%(trailers:key=Feature)", "-1") == (
        "Some One|2026-01-02T12:00:00+02:00|Change 2 of alpha|Feature: fix"
    )

    lab.ok("unapply")
    assert (lab.snapshot(), lab.heads()) == (pristine, bases)
    assert not (lab.frameworks / "alpha/src/new").exists()
    assert git(lab.frameworks / "alpha", "branch", "--format=%(refname)").splitlines() == [
        "(HEAD detached at patchset/base)"
    ]
    lab.assert_clean()
    lab.ok("apply")
    assert (lab.snapshot(), lab.heads()) == (patched, tips)


def test_a_second_apply_does_nothing_and_says_so(lab: Lab) -> None:
    lab.ok("apply")
    times = {path: path.stat().st_mtime_ns for path in lab.frameworks.glob("*/src/**/*")}
    start = time.monotonic()
    assert "nothing to do" in lab.ok("apply").out
    assert time.monotonic() - start < 2
    assert times == {path: path.stat().st_mtime_ns for path in lab.frameworks.glob("*/src/**/*")}
    lab.ok("unapply")
    assert "nothing to do" in lab.ok("unapply").out


def test_the_result_is_the_same_on_another_machine(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    lab.ok("apply")
    here, files = lab.heads(), lab.snapshot()
    # Another folder, user, time zone and umask, and a global configuration that changes bytes and runs hooks.
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for hook in ("post-checkout", "reference-transaction", "pre-auto-gc", "post-index-change"):
        (hooks / hook).write_text("#!/bin/sh\nexit 1\n")
        (hooks / hook).chmod(0o755)
    (tmp_path / "attributes").write_text("*.py text eol=crlf ident\n")
    (tmp_path / "other").write_text(
        f"[user]\nname = X\nemail = x@y\n[core]\nautocrlf = true\nhooksPath = {hooks}\nattributesFile = "
        f"{tmp_path}/attributes\n[commit]\ngpgSign = true\n[apply]\nwhitespace = fix\n"
        "[init]\ndefaultObjectFormat = sha256\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "other"))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("FRAMEWORKS_DIR", str(tmp_path / "elsewhere"))
    before = os.umask(0o077)
    try:
        lab.ok("fetch")
        lab.ok("apply")
    finally:
        os.umask(before)
    for name, commit in here.items():
        assert git(tmp_path / "elsewhere" / name, "rev-parse", "HEAD") == commit
    assert all((tmp_path / "elsewhere" / path).read_bytes() == content for path, content in files.items())


def test_upstream_attributes_do_not_change_bytes(empty_lab: Lab) -> None:
    lab = empty_lab
    repo = lab.upstream("beta")
    (repo / ".gitattributes").write_text("*.py text eol=crlf ident\n*.md filter=lfs\n")
    (repo / "src/b.py").write_bytes(b"# $Id$\r\nx\r\ny\n")
    git(repo, "-c", "core.attributesFile=/dev/null", "add", "-A")
    git(repo, "commit", "-qm", "attributes")
    blob = subprocess.run(
        ["git", "cat-file", "blob", "HEAD:src/b.py"], cwd=repo, capture_output=True, check=True
    ).stdout
    lab.keys["beta"]["commit"] = f'"{git(repo, "rev-parse", "HEAD")}"'
    lab.write_lock()
    lab.ok("fetch")
    assert (lab.frameworks / "beta/src/b.py").read_bytes() == blob
    assert lab.states()["beta"] == "no patches"


def test_git_variables_of_a_hook_are_ignored(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    outer = lab.top / "outer"
    git(lab.top, "init", "-q", "outer")
    monkeypatch.setenv("GIT_DIR", str(outer / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(outer))
    monkeypatch.setenv("GIT_INDEX_FILE", str(outer / ".git/other-index"))
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody Else")
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'core.bare=true'")
    lab.ok("apply")
    for key in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        assert key not in os.environ
    assert git(lab.frameworks / "alpha", "log", "-1", "--format=%an") == "Some One"
    assert not (outer / ".git/other-index").exists()


# What would lose work


def assert_untouched_by(lab: Lab, *names: str) -> None:
    """apply (or unapply, if applied) is refused with `names`; then nothing is different in any checkout."""
    command = "apply" if "not applied" in lab.states().values() else "unapply"
    before = lab.snapshot(), lab.heads()
    lab.refused(4, command, names=names)
    assert (lab.snapshot(), lab.heads()) == before


def test_an_edited_file(lab: Lab) -> None:
    (lab.frameworks / "beta/src/b.py").write_text("mine\n")
    assert_untouched_by(lab, "beta/src/b.py is edited")
    git(lab.frameworks / "beta", "checkout", "-f", "HEAD")
    lab.ok("apply")
    (lab.frameworks / "alpha/README").write_text("mine\n")
    assert_untouched_by(lab, "alpha/README is edited")
    lab.refused(4, "apply", names=("alpha/README is edited",))


def test_a_staged_file(lab: Lab) -> None:
    (lab.frameworks / "beta/src/new.py").write_text("mine\n")
    git(lab.frameworks / "beta", "add", "src/new.py")
    assert_untouched_by(lab, "beta/src/new.py is edited")


@pytest.mark.parametrize("path", ["alpha/src/new/made.py", "beta/src/run.log"])
def test_an_untracked_or_ignored_file_that_a_patch_creates(lab: Lab, path: str) -> None:
    (lab.frameworks / "beta/.git/info/exclude").write_text("*.log\n")
    lab.write(lab.frameworks, {path: "mine\n"})
    assert_untouched_by(lab, f"{path} is untracked and a patch creates it")


def test_a_file_where_a_patch_needs_a_folder(lab: Lab) -> None:
    lab.write(lab.frameworks, {"alpha/src/new": "mine\n"})
    assert_untouched_by(lab, "alpha/src/new/made.py is untracked")


def test_commits_that_are_not_ours(lab: Lab) -> None:
    lab.ok("apply")
    alpha = lab.frameworks / "alpha"
    git(alpha, "commit", "-q", "--allow-empty", "-m", "mine")
    mine = git(alpha, "rev-parse", "HEAD")
    assert lab.states()["alpha"] == "foreign"
    assert_untouched_by(lab, f"alpha stands at commit {mine[:12]}", "git -C CHECKOUT branch mine")
    # Also where only the branch holds them.
    git(alpha, "checkout", "-q", "patchset/base")
    lab.refused(4, "apply", names=("branch patched has commits",))
    assert git(alpha, "rev-parse", "patched") == mine


def test_a_rebase_under_way(lab: Lab) -> None:
    (lab.frameworks / "alpha/.git/rebase-merge").mkdir()
    assert_untouched_by(lab, "alpha: a git operation is under way (rebase-merge)")


def test_other_untracked_files_stay(lab: Lab) -> None:
    lab.write(lab.frameworks, {"alpha/src/mine.py": "mine\n", "beta/notes.log": "mine\n"})
    lab.ok("apply")
    lab.ok("unapply")
    assert (
        (lab.frameworks / "alpha/src/mine.py").read_text()
        == (lab.frameworks / "beta/notes.log").read_text()
        == "mine\n"
    )


@pytest.mark.parametrize("command", ["apply", "unapply", "fetch", "status"])
def test_a_checkout_inside_another_repository(lab: Lab, command: str) -> None:
    git(lab.root, "init", "-q")
    (lab.frameworks / "beta/.git").rename(lab.top / "taken")
    before = lab.snapshot()
    if command == "status":
        done = lab.ok("status")
        assert "foreign" in done.out and "frameworks/beta is not a checkout" in done.out
        assert f"beta: next: move {lab.frameworks}/beta away" in done.out
    elif command == "fetch":
        done = lab.run("fetch")
        assert done.code == 4 and "frameworks/beta is not a checkout" in done.err
    else:
        lab.refused(4, command, names=("frameworks/beta is not a checkout", "move"))
    assert lab.snapshot() == before
    assert git(lab.root, "status", "--porcelain", "--untracked-files=no") == ""


# What does not fit


def test_a_hunk_that_no_longer_fits(lab: Lab) -> None:
    file = lab.root / "patches/alpha/0002-fix-change.patch"
    file.write_text(file.read_text().replace("\n line 29\n", "\n line 29 of old\n"))
    before = lab.snapshot(), lab.heads()
    message = lab.refused(5, "apply", names=("alpha: patches/alpha/0002-fix-change.patch does not apply", "git -C"))
    assert "src/a.py, hunk 1 of 1 (line 27): expected 'line 29 of old', found 'line 29'" in message
    assert (lab.snapshot(), lab.heads()) == before
    assert not list(lab.frameworks.glob("*/.git/patchset-index*"))


def test_a_patch_to_a_file_that_is_gone(lab: Lab) -> None:
    lab.add_patch("alpha", 3, {"src/a.py": LONG})
    (lab.root / "patches/alpha/0001-fix-change.patch").unlink()
    (lab.root / "patches/alpha/0002-fix-change.patch").unlink()
    file = lab.root / "patches/alpha/0003-fix-change.patch"
    file.write_text(file.read_text().replace("src/a.py", "src/z.py"))
    lab.refused(5, "apply", names=("0003-fix-change.patch does not apply: src/z.py: does not exist in index",))


@pytest.fixture
def three(empty_lab: Lab) -> Lab:
    """Three patches that touch different files; fetched."""
    empty_lab.add_patch("alpha", 1, {"src/a.py": LONG + "more\n"})
    empty_lab.add_patch("alpha", 2, {"src/gone.py": None, "src/made.py": "made\n"})
    empty_lab.add_patch("alpha", 3, {"src/last.py": "last\n"})
    empty_lab.ok("fetch")
    return empty_lab


def test_every_patch_is_a_commit(three: Lab) -> None:
    three.ok("apply")
    log = git(three.frameworks / "alpha", "log", "--reverse", "--format=%s", "--name-status", "patchset/base..")
    assert [line for line in log.splitlines() if line] == [
        *("Change 1 of alpha", "M\tsrc/a.py"),
        *("Change 2 of alpha", "D\tsrc/gone.py", "A\tsrc/made.py"),
        *("Change 3 of alpha", "A\tsrc/last.py"),
    ]


@pytest.mark.parametrize(("number", "old", "new"), [(1, " line 40", " line 41"), (2, "-old", "-young")])
def test_which_of_three_patches_does_not_fit(three: Lab, number: int, old: str, new: str) -> None:
    file = three.root / f"patches/alpha/{number:04}-fix-change.patch"
    file.write_text(file.read_text().replace(f"\n{old}\n", f"\n{new}\n"))
    three.refused(5, "apply", names=(f"alpha: patches/alpha/{file.name} does not apply", f"found {old[1:]!r}"))


@pytest.mark.parametrize("made", ["src/b.py/made", "src"], ids=["below a file", "in place of a folder"])
def test_a_new_file_where_upstream_has_something_else(empty_lab: Lab, made: str) -> None:
    lab = empty_lab
    file = lab.add_patch("beta", 1, {"src/made": "made\n"})
    file.write_text(file.read_text().replace("src/made", made))
    lab.keys["beta"]["paths"] = '["src", "src/"]'
    lab.write_lock()
    lab.ok("fetch")
    before = lab.snapshot(), lab.heads()
    lab.refused(5, "apply", names=("beta: patches/beta/0001-fix-change.patch does not apply", made))
    assert (lab.snapshot(), lab.heads()) == before


@pytest.mark.parametrize("name", ["Some One, Jr.", "'Some' One", "Søme Öne"])
def test_an_authors_name_is_kept_to_the_letter(lab: Lab, name: str) -> None:
    file = lab.root / "patches/beta/0001-fix-change.patch"
    file.write_text(file.read_text().replace("From: Some One <", f'From: "{name}" <'))
    lab.ok("export", "--only", "beta")
    lab.ok("apply")
    assert git(lab.frameworks / "beta", "log", "-1", "--format=%an|%cn") == f"{name}|patchset"
    lab.ok("export", "--check")


def test_an_odd_time_zone(lab: Lab) -> None:
    file = lab.root / "patches/beta/0001-fix-change.patch"
    file.write_text(file.read_text().replace("12:00:00 +0200", "12:00:00 +1530"))
    lab.ok("apply")
    assert git(lab.frameworks / "beta", "log", "-1", "--format=%aI") == "2026-01-01T12:00:00+15:30"


def test_line_offsets_are_no_conflict(lab: Lab) -> None:
    file = lab.root / "patches/beta/0001-fix-change.patch"
    file.write_text(file.read_text().replace("@@ -38,3 +38,4 @@", "@@ -37,3 +37,4 @@"))
    assert "-37,3" in file.read_text()
    lab.ok("apply")


def test_files_that_differ_from_the_lock(lab: Lab) -> None:
    file = lab.root / "patches/beta/0001-fix-change.patch"
    file.write_text(file.read_text().replace("+more\n", "+less\n"))
    before = lab.snapshot(), lab.heads()
    lab.refused(5, "apply", names=("beta: the patched files have hash", "patchset export --only beta"))
    assert (lab.snapshot(), lab.heads()) == before
    lab.ok("export", "--only", "beta")
    lab.ok("apply")


def test_a_hash_may_be_missing_only_without_an_sdist(lab: Lab) -> None:
    lab.write_lock()
    done = lab.ok("apply")
    assert "alpha: the lock has no patched_sha256" in done.out
    lab.ok("unapply")
    lab.keys["beta"]["sdist"] = f'{{ project = "beta", file = "beta-1.0.tar.gz", sha256 = "{"0" * 64}" }}'
    lab.write_lock()
    lab.refused(5, "apply", names=("beta", "says nothing"))


def test_the_hash_is_what_the_docs_say(lab: Lab) -> None:
    lab.ok("apply")
    alpha = lab.frameworks / "alpha"
    sums = "".join(
        f"{path}\\0$([ -e {path} ] && sha256sum < {path} | cut -c-64 || printf -)\\n"
        for path in ("src/a.py", "src/gone.py", "src/new/made.py")
    )
    script = f'printf "{sums}" | sha256sum | cut -c-64'
    by_hand = subprocess.run(["bash", "-c", script], cwd=alpha, capture_output=True, text=True, check=True).stdout
    assert f'patched_sha256 = "{by_hand.strip()}"' in (lab.root / "patches/stack.toml").read_text()


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("patches/gamma/0001-a-b.patch", "patches/gamma"),
        ("patches/alpha/0002-fix-other.patch", "has the number of 0002"),
    ],
)
def test_a_misplaced_patch(lab: Lab, path: str, named: str) -> None:
    (lab.root / path).parent.mkdir(exist_ok=True)
    (lab.root / path).write_bytes((lab.root / "patches/alpha/0001-fix-change.patch").read_bytes())
    lab.refused(3, "apply", names=(named,))


def test_a_patch_outside_the_paths_of_the_lock(lab: Lab) -> None:
    lab.add_patch("alpha", 3, {"README": "patched\n"})
    lab.refused(3, "apply", names=("patches/alpha/0003-fix-change.patch: changes README",))


def test_crlf_patches(lab: Lab) -> None:
    file = lab.root / "patches/beta/0001-fix-change.patch"
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    lab.refused(3, "apply", names=("patches/beta/0001-fix-change.patch: has CRLF", "sed -i"))


def test_a_new_series_replaces_the_old_one(lab: Lab) -> None:
    lab.ok("apply")
    old = lab.head("beta")
    file = lab.root / "patches/beta/0001-fix-change.patch"
    file.write_text(file.read_text().replace("+more\n", "+less\n"))
    assert lab.states() == {"alpha": "applied", "beta": "outdated"}
    lab.ok("export")
    assert lab.ok("apply").out == "beta: applied\n"
    assert lab.head("beta") != old
    file.unlink()
    lab.keys["beta"].pop("patched_sha256", None)
    lab.write_lock()
    lab.ok("apply")
    assert lab.states()["beta"] == "no patches"


def test_a_moved_pin_is_refused(lab: Lab) -> None:
    repo = lab.upstream("beta")
    lab.keys["beta"] |= {"commit": f'"{git(repo, "rev-parse", "HEAD")}"', "version": '"2.0"'}
    lab.write_lock()
    lab.refused(4, "apply", names=("frameworks/beta is made of git-", "pins 2.0", "patchset fetch --only beta"))
    assert lab.states()["beta"] == "outdated"
    assert "patchset fetch --only beta" in lab.ok("status").out
    assert lab.run("fetch").code == 4
    lab.ok("unapply")


def test_an_absent_framework_is_skipped(lab: Lab) -> None:
    (lab.frameworks / "beta").rename(lab.top / "taken")
    done = lab.ok("apply")
    assert "alpha: applied" in done.out and "beta: source absent" in done.out
    (lab.frameworks / "alpha").rename(lab.top / "taken too")
    lab.refused(6, "apply", names=("patchset fetch",))


def test_two_commands_at_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with project.exclusive(project.find_project(str(lab.root))):
        process = lab.spawn("apply")
        done = lab.finish(process)
    assert done.code == 7 and f"process {os.getpid()}" in done.err
    # A process that is dead, but whose last git still holds the lock: wait for that, not for ever.
    monkeypatch.setattr(project, "ORPHAN_WAIT", 0.3)
    dead = subprocess.Popen(["true"])
    dead.wait()
    with project.exclusive(project.find_project(str(lab.root))):
        (lab.frameworks / ".patchset.lock").write_text(str(dead.pid))
        start = time.monotonic()
        lab.refused(7, "apply", names=(f"process {dead.pid}",))
        assert 0.3 <= time.monotonic() - start < 5
    lab.ok("apply")


def test_two_processes_apply_together(lab: Lab) -> None:
    done = [lab.finish(process) for process in [lab.spawn("apply") for _ in range(3)]]
    assert {each.code for each in done} <= {0, 7}
    assert any(each.code == 0 for each in done)
    assert set(lab.states().values()) == {"applied"}


def test_git_is_missing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    lab.refused(8, "apply", names=("git was not found", "install git"))


def test_usage(lab: Lab) -> None:
    assert lab.run("aply").code == 2
    help_text = lab.run("--help").out
    assert all(f"  {code:<4} " in help_text for code in (0, 2, 3, 4, 5, 6, 7, 8, 130))
