"""A walk through every foreseeable fault: a message that names it, a next step, the documented code, no traceback."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from patchset_lab import Lab, git

PATCH = "patches/beta/0001-fix-change.patch"


def write(path: str, content: str | bytes) -> Callable[[Lab], None]:
    def do(lab: Lab) -> None:
        (lab.root / path).parent.mkdir(parents=True, exist_ok=True)
        (lab.root / path).write_bytes(content.encode() if isinstance(content, str) else content)

    return do


def change(path: str, old: str, new: str) -> Callable[[Lab], None]:
    def do(lab: Lab) -> None:
        text = (lab.root / path).read_bytes()
        assert old.encode() in text
        (lab.root / path).write_bytes(text.replace(old.encode(), new.encode()))

    return do


def shell(script: str) -> Callable[[Lab], None]:
    def do(lab: Lab) -> None:
        assert os.system(f"cd {lab.root} && {{ {script}; }} >/dev/null 2>&1") == 0

    return do


COMMIT = "cd frameworks/beta && git checkout -q -B patched && "
FAULTS = [
    # what the checkouts are like
    (shell("echo x >> frameworks/beta/src/b.py"), "apply", 4, "is edited"),
    (shell("echo x > frameworks/beta/src/run.log"), "apply", 4, "is untracked"),
    (shell(COMMIT + "git commit -q --allow-empty -m x"), "apply", 4, "not patchset's"),
    (shell("rm -rf frameworks/beta/.git; git init -q"), "apply", 4, "is not a checkout"),
    (shell("rm -rf frameworks/beta; echo x > frameworks/beta"), "apply", 4, "is not a checkout"),
    (shell("rm -rf frameworks/*"), "apply", 6, "holds no checkout"),
    (shell("git -C frameworks/beta update-ref -d refs/tags/patchset/base"), "unapply", 4, "is not a checkout"),
    (shell("echo junk > frameworks/beta/.git/HEAD"), "apply", 8, "git "),
    (shell("echo '{' > frameworks/.patchset-journal.json"), "apply", 4, "is damaged"),
    (write("frameworks/.patchset-features.json", "?"), "apply --feature fix", 4, "is damaged"),
    (shell("echo junk > frameworks/.patchset.lock"), "apply", 0, ""),
    # the lock and the patches
    (change("patches/stack.toml", "[platform]", "[platform"), "status", 3, "not valid TOML"),
    (change("patches/stack.toml", 'hdk = "1"', 'hdk = "1"\nmore = 1'), "lint", 3, "platform.more"),
    (shell("rm patches/stack.toml"), "apply", 2, "is not there"),
    (shell(f"sed -i 's/$/\\r/' {PATCH}"), "apply", 3, "CRLF"),
    (write(PATCH, ""), "apply", 3, "holds no `diff --git`"),
    (write(PATCH, b"\xff\xfe\x00"), "lint", 3, "0001-fix-change.patch"),
    (change(PATCH, "Date: ", "Date: yesterday "), "status", 3, "mail header"),
    (change(PATCH, " line 38", " line XXXVIII"), "apply", 5, "hunk 1 of 1"),
    (change(PATCH, " line 38", " line XXXVIII"), "verify", 5, "beta"),
    (change(PATCH, " line 38", " line XXXVIII"), "export", 5, "does not apply"),
    (change(PATCH, "+more", "+less"), "apply", 5, "have hash"),
    (change(PATCH, "src/b.py", "lib/b.py"), "apply", 3, "outside the lock's paths"),
    (change(PATCH, "Feature: fix", "Feature: fox"), "lint", 3, "the lock has only"),
    (shell(f"cp {PATCH} patches/beta/0001-fix-twin.patch"), "export", 3, "has the number of"),
    (shell(f"mv {PATCH} patches/beta/x.patch"), "apply", 3, "NNNN-<feature>-<what>.patch"),
    (shell("mkdir patches/gamma"), "list", 3, "patches/gamma"),
    # arguments
    (None, "apply --feature nothing", 2, "'nothing'"),
    (None, "fetch --only nothing", 2, "'nothing'"),
    (None, "export --only nothing", 2, "'nothing'"),
    (None, "rebase nothing --to 2", 2, "'nothing'"),
    (None, "why nothing.py", 2, "nothing.py"),
    (None, "fetch --bundle /nothing", 2, "/nothing"),
    (None, "fetch --bundle .", 8, "directory"),
    (None, "bundle create /nothing/here", 8, "/nothing"),
    # maintainers' commits
    (shell(COMMIT + "echo x > src/n && git add -A && git commit -qm x"), "export", 4, "has changed since"),
    # sources
    (shell("rm -rf frameworks/beta ../upstream/beta"), "rebase beta --to 2", 6, "no source has 2"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "command", "code", "named"), FAULTS, ids=range(len(FAULTS)))
def test_a_fault_is_said_and_nothing_is_lost(
    lab: Lab, make: Callable | None, command: str, code: int, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lab.top)
    if make:
        make(lab)
    before = {path: path.read_bytes() for path in lab.root.glob("patches/**/*") if path.is_file()}
    if code:
        lab.refused(code, *command.split(), names=(named,))
    else:
        lab.ok(*command.split())
    assert {path: path.read_bytes() for path in lab.root.glob("patches/**/*") if path.is_file()} == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_missing_rights(lab: Lab) -> None:
    (lab.root / "frameworks").chmod(0o500)
    try:
        lab.refused(8, "apply", names=("ermission",))
    finally:
        (lab.root / "frameworks").chmod(0o700)


def test_every_code_is_documented() -> None:
    from patchset.errors import EXIT_TEXTS

    text = (Path(__file__).parents[2] / "docs/patchset.md").read_text()
    assert all(f"| {code.value} | {said} |" in text for code, said in EXIT_TEXTS.items())


def test_a_deleted_upstream_changes_nothing_once_fetched(lab: Lab) -> None:
    shutil.rmtree(lab.top / "upstream")
    lab.ok("apply")
    assert git(lab.frameworks / "alpha", "status", "--porcelain") == ""


JOURNALS = [
    "",
    "[]",
    "null",
    "7",
    '{"moves": {}, "features": null}',
    '{"moves": [], "features": null}',
    '{"moves": [{"name": 7, "old": "a", "new": "b"}], "features": null}',
    '{"moves": [{"name": "../..", "old": "a", "new": "b"}], "features": null}',
    '{"moves": [{"name": "beta", "old": "--all", "new": "b"}], "features": null}',
    '{"moves": [{"name": "beta", "old": "a"',
    b"\xff\x00",
]


@pytest.mark.parametrize("content", JOURNALS, ids=range(len(JOURNALS)))
def test_a_damaged_journal(lab: Lab, content: str | bytes) -> None:
    write("frameworks/.patchset-journal.json", content)(lab)
    for command in ("status", "apply", "unapply", "verify"):
        lab.refused(4, command, names=(".patchset-journal.json is damaged", "git diff > my.diff"))


def test_the_next_step_after_a_damaged_journal(lab: Lab) -> None:
    lab.ok("apply")
    write("frameworks/.patchset-journal.json", "")(lab)
    said = lab.refused(4, "status")
    shell(said.partition("then: ")[2].strip())(lab)
    assert lab.states() == {"alpha": "not applied", "beta": "not applied"}
    lab.ok("apply")
