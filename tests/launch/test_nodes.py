"""The nodes of a cluster: what differs is named; a real Ray answers."""

import pytest

from qwen3_rl.errors import UserError

pytest.importorskip("ray", reason="needs build_project.sh --target cpu")
from qwen3_rl.launch import nodes

HEAD = {"lock": "aaa", "verl": "111", "vllm": "222"}


def test_equal_nodes_do_not_differ():
    assert nodes.differences(HEAD, {"a": dict(HEAD), "b": dict(HEAD)}) == []


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({**HEAD, "vllm": "333"}, ["b: vllm is 333, on the head it is 222"]),
        ({**HEAD, "lock": "bbb"}, ["b: lock is bbb, on the head it is aaa"]),
        ({"lock": "aaa", "verl": "111"}, ["b: vllm is not there, on the head it is 222"]),
        ({**HEAD, "mindspeed": "444"}, ["b: mindspeed is 444, on the head it is not there"]),
        ({"fault": "`import verl` takes /x"}, ["b: `import verl` takes /x"]),
        (
            {**HEAD, "verl": "1", "vllm": "2"},
            ["b: verl is 1, on the head it is 111", "b: vllm is 2, on the head it is 222"],
        ),
    ],
)
def test_node_and_framework_are_named(said, expected):
    assert nodes.differences(HEAD, {"a": dict(HEAD), "b": said}) == expected


def test_a_mixed_cluster_is_refused():
    assert "2 node(s) import the same trees: lock:aaa verl:111" in nodes.check(HEAD, {"a": HEAD, "b": dict(HEAD)})
    with pytest.raises(UserError) as caught:
        nodes.check(HEAD, {"a": HEAD, "b": {**HEAD, "verl": "999"}})
    assert "b: verl is 999" in caught.value.what and caught.value.exit_code == 1


MIXED = """
cp -r "{root}/patches" "$RUN_FOLDER/patches" && echo "# another state" >> "$RUN_FOLDER/patches/stack.toml"
export FRAMEWORKS_DIR=${{FRAMEWORKS_DIR:-{root}/frameworks}} PATCHSET_ROOT=$RUN_FOLDER
python -m qwen3_rl.launch.nodes < /dev/null
"""


def test_a_real_node_answers_and_another_tree_is_refused(launch):
    """The train script asks again as a head with another lock: the one real node then differs."""
    from .conftest import ROOT

    run = launch(MIXED.format(root=ROOT))
    assert run.finish() == 1, run.output
    assert "1 node(s) import the same trees: lock:" in run.output
    assert "the machines of this cluster do not run the same trees" in run.output
    assert "): lock is " in run.output and "Traceback" not in run.output
    run.assert_nothing_left()
