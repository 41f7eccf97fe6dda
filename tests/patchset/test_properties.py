"""What must hold for every repository and series: generated ones, kills at random moments, damaged bytes."""

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from patchset_lab import Lab, git

from patchset import cli, switch
from patchset.errors import Exit

KILLS = 200
DAMAGES = 500
QUIET = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    "phases": [Phase.explicit, Phase.reuse, Phase.generate],  # shrinking takes minutes
}

# Contents with what trips tools up: no newline at the end, CRLF, blank lines, look-alikes of a diff, no UTF-8.
LINES = st.sampled_from([
    b"a\n", b"b\n", b"\n", b" \n", b"--- a/x\n", b"+++ b/x\n", b"@@ -1 +1 @@\n", b"diff --git a/x b/x\n", b"-- \n",
    b"c\r\n", b"\xe4\xff\n", b"\tdeep\n", "größe\n".encode(), b"From 0000 Mon\n", b"---\n", b"d\x0c\n",
    b"\\ No newline\n",
])  # fmt: skip
CONTENTS = st.tuples(st.lists(LINES, max_size=14), st.sampled_from([b"", b"", b"end"])).map(
    lambda parts: b"".join(parts[0]) + parts[1]
)
PATHS = st.sampled_from(["src/a.py", "src/b c.py", "src/d/e.py", "src/d/größe.py", "src/f"])
TREES = st.dictionaries(PATHS, CONTENTS, min_size=1, max_size=4)
SUBJECTS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=90).filter(
    lambda text: not text.startswith("[")
)


def build(lab: Lab, trees: list[dict[str, bytes]], subjects: list[str]) -> list[dict[str, bytes]]:
    """An upstream with the first tree, fetched, and the other trees as commits on it. Returns all distinct trees."""
    repo, work = lab.upstream("alpha"), lab.frameworks / "alpha"
    for folder in (repo, work, lab.root):
        shutil.rmtree(folder, ignore_errors=True)
    lab.keys.clear()
    lab.add_framework("alpha", {"keep": "upstream\n"})
    fill(repo, trees[0])
    commit(repo, "Upstream")
    lab.keys["alpha"]["commit"] = f'"{git(repo, "rev-parse", "HEAD")}"'
    lab.write_lock()
    lab.ok("fetch")
    git(work, "checkout", "-q", "-b", "patched")
    seen = [trees[0]]
    for tree, subject in zip(trees[1:], subjects, strict=False):
        if tree != seen[-1]:
            fill(work, tree)
            commit(work, f"{subject}\n\nWhy.\n\nFeature: fix\nUpstream-Status: Inappropriate test\nTested-by: x")
            seen.append(tree)
    return seen


def fill(where: Path, tree: dict[str, bytes]) -> None:
    shutil.rmtree(where / "src", ignore_errors=True)
    for path, content in tree.items():
        (where / path).parent.mkdir(parents=True, exist_ok=True)
        (where / path).write_bytes(content)


def commit(where: Path, message: str) -> None:
    git(where, "add", "-A", "-f")
    git(where, "commit", "-q", "--allow-empty", "--cleanup=verbatim", "-F", "-", input=message)


def files(lab: Lab) -> dict[str, bytes]:
    return {key.removeprefix("alpha/"): content for key, content in lab.snapshot().items() if "/src/" in key}


def patches(lab: Lab) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (lab.root / "patches").rglob("*") if path.is_file()}


@settings(max_examples=20, **QUIET)
@given(trees=st.lists(TREES, min_size=2, max_size=4), subjects=st.lists(SUBJECTS, min_size=3, max_size=3))
def test_export_and_apply_are_each_others_inverse(empty_lab: Lab, trees: list, subjects: list[str]) -> None:
    """commits, export, unapply, apply: the same files; export again: the same bytes; apply, unapply, apply: equal."""
    lab = empty_lab
    seen = build(lab, trees, subjects)
    lab.ok("export")
    first, head = patches(lab), lab.head("alpha")
    assert files(lab) == seen[-1] and len(first) == len(seen)  # a patch a commit, and the lock
    note(str(first))
    lab.ok("unapply")
    assert files(lab) == seen[0]
    lab.ok("apply")
    assert (files(lab), lab.head("alpha")) == (seen[-1], head)
    lab.ok("export", "--check")
    lab.ok("export")
    assert patches(lab) == first
    lab.ok("verify")
    lab.ok("unapply")
    assert files(lab) == seen[0]
    lab.assert_clean()


@pytest.fixture
def both(lab: Lab) -> dict[str, tuple]:
    """The two states that there may be, by the command that leads there; the lab is left unapplied."""
    lab.ok("apply")
    applied = lab.snapshot(), lab.heads()
    lab.ok("unapply")
    return {"apply": applied, "unapply": (lab.snapshot(), lab.heads())}


def in_a_child(lab: Lab, command: str, end: Callable[[int], None]) -> int:
    """Run a command in a forked process of its own group, which `end` may kill; returns its exit code or -signal.

    What it prints is in the file `said`.
    """
    pid = os.fork()
    if pid == 0:
        os.setsid()
        sys.stdout = sys.stderr = (lab.root / "said").open("w", buffering=1)  # pytest has put its own there
        os._exit(cli.main(["--root", str(lab.root), command]))
    end(pid)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill_after(seconds: float, whole_group: bool) -> Callable[[int], None]:
    def end(pid: int) -> None:
        time.sleep(seconds)
        with suppress(ProcessLookupError):
            (os.killpg if whole_group else os.kill)(pid, signal.SIGKILL)

    return end


def test_random_kills_are_mended(lab: Lab, both: dict[str, tuple]) -> None:
    """SIGKILL to the command alone (its git lives on), or to all of its processes, at any moment."""
    dice = random.Random(3)  # the moments are random enough by themselves
    killed, states, mended_by, longest = 0, set(), "unapply", 0.1
    for _ in range(KILLS):
        for name in lab.keys:  # so that the commits are made anew
            if mended_by == "unapply" and dice.random() < 0.5:
                shutil.rmtree(lab.frameworks / name / ".git/refs/patchset/stack", ignore_errors=True)
        command, mended_by = dice.choice(["apply", "unapply"]), dice.choice(["apply", "unapply"])
        code = in_a_child(lab, command, kill_after(dice.random() * longest, dice.random() < 0.5))
        assert code in (0, -9), (command, code, (lab.root / "said").read_text())
        killed += code == -9
        longest *= 1.05 if code else 0.9  # on a machine of any speed two of three are killed
        if not switch.journal_path(cli.find_project(str(lab.root))).exists():
            # Without a journal each checkout is in the old or the new state, and all of them in the same.
            assert (lab.snapshot(), lab.heads()) in both.values()
        else:
            states.add("interrupted")
        lab.ok(mended_by)
        assert (lab.snapshot(), lab.heads()) == both[mended_by]
        lab.assert_clean()
        assert not list(lab.frameworks.glob("*/.git/index.lock"))
    assert killed > KILLS / 3 and states, "the moments were badly chosen"


def test_damaged_bytes_never_give_a_wrong_tree(lab: Lab, both: dict[str, tuple]) -> None:
    """One to three bytes of a patch file changed, dropped or added: a clear error, or exactly the right files."""
    dice = random.Random(5)
    originals = {path: path.read_bytes() for path in sorted(lab.root.glob("patches/*/*.patch"))}
    codes: dict[int, int] = {}
    for _ in range(DAMAGES):
        path = dice.choice(list(originals))
        data = bytearray(originals[path])
        for _ in range(dice.choice([1, 1, 1, 2, 3])):
            at = dice.randrange(len(data))
            data[at : at + dice.choice([0, 1, 1, 1])] = dice.choice(
                [b"", bytes([dice.randrange(256)]), b"\n", b"+", b" "]
            )
        path.write_bytes(data)
        done = lab.run("apply")
        codes[done.code] = codes.get(done.code, 0) + 1
        if done.code:
            assert done.code in (Exit.BAD_INPUT, Exit.CONFLICT), done
            assert done.err.startswith("error: ") and "\nnext: " in done.err
            assert path.name in done.err or path.parent.name in done.err
            if done.code == Exit.CONFLICT:
                assert (lab.snapshot(), lab.heads()) == both["unapply"]
        else:
            assert lab.snapshot() == both["apply"][0]
            path.write_bytes(originals[path])
            lab.ok("unapply")
        path.write_bytes(originals[path])
    assert (lab.snapshot(), lab.heads()) == both["unapply"]
    assert codes[0] > 10 and codes[Exit.BAD_INPUT] > 100 and codes[Exit.CONFLICT] > 20, codes
