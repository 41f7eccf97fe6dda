"""Every patch names a test, and that test fails on the tree that lacks the patch."""

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from patchset.patchfile import Patch
from patchset.project import find_project
from qwen3_rl.build import COMPILED

pytest.importorskip("torch", reason="needs build_project.sh --target cpu")

PROJECT = find_project(None)
# The environment that runs a framework's tests.
PYTHONS = {
    "verl": Path(sys.executable),
    "vllm": Path(sys.executable),
    "megatron-core": Path(sys.executable),
    "vllm-ascend": PROJECT.root / ".venv-ascend" / "bin" / "python",  # scripts/ascend_venv.sh makes it
}
SERIES = [(name, i) for name in PYTHONS for i in range(len(PROJECT.series[name]))]


def make_tree(name: str, folder: Path) -> Path:
    """The framework without patches."""
    base = subprocess.run(
        ["git", "-C", PROJECT.path(name), "archive", "patchset/base"], check=True, capture_output=True
    ).stdout
    tree = folder / name
    tree.mkdir()
    subprocess.run(["tar", "-x", "-C", tree], input=base, check=True)
    # A repository of its own, or `git apply` would take the folder for a part of ours and skip every file.
    subprocess.run(["git", "-C", tree, "init", "--quiet"], check=True)
    if name == "vllm":
        shutil.copy(PROJECT.path(name) / COMPILED, tree / COMPILED)
    return tree


def outcome(python: Path, test: str, tree: Path, report: Path) -> str:
    """Runs one test with ``tree`` imported in place of the checkout: "passed", "failed" or what pytest says else."""
    done = subprocess.run(
        [python, "-m", "pytest", test, "-q", "-p", "no:cacheprovider", f"--junit-xml={report}"],
        cwd=PROJECT.root,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    (case,) = ElementTree.parse(report).getroot().iter("testcase")
    tags = {child.tag for child in case}
    if done.returncode == 0 and not tags:
        return "passed"
    return "failed" if tags == {"failure"} else done.stdout


def named_test(patch: Patch) -> str:
    test = patch.trailers.get("Tested-by", "")
    assert (PROJECT.root / test.partition("::")[0]).is_file(), f"{patch.shown}: Tested-by names no test: {test!r}"
    return test


def outcomes_of(name: str, wanted: dict[int, Future], folder: Path) -> None:
    """Answers each of `wanted`, {index of a patch: its test's outcome}, on the tree with only the patches before it.

    One tree, which grows: what Python has compiled of it stays valid but for the files of a patch.
    """
    try:
        tree = make_tree(name, folder)
        for index, patch in enumerate(PROJECT.series[name]):
            if index in wanted:
                try:
                    found = outcome(PYTHONS[name], named_test(patch), tree, folder / f"{index}.xml")
                    wanted[index].set_result(found)
                except Exception as error:
                    wanted[index].set_exception(error)
            subprocess.run(["git", "-C", tree, "apply", "-"], input=patch.data, check=True)
    except BaseException as error:
        for future in wanted.values():
            if not future.done():
                future.set_exception(error)


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    """The outcome of each chosen patch's test, to come: two frameworks at a time, since most of each is imports."""
    chosen: dict[str, dict[int, Future]] = defaultdict(dict)
    for item in request.session.items:
        if item.path == Path(__file__):
            name, index = item.callspec.params.values()
            chosen[name][index] = Future()
    with ThreadPoolExecutor(2) as pool:
        for name, wanted in chosen.items():
            pool.submit(outcomes_of, name, wanted, tmp_path_factory.mktemp(name))
        yield chosen
        pool.shutdown(cancel_futures=True)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("name", "index"), SERIES)
def test_fails_without_the_patch(name, index, outcomes):
    assert outcomes[name][index].result() == "failed"
