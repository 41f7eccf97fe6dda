"""The switch: what it brings along, and what is refused with both settings named."""

import pytest

from qwen3_rl.errors import UserError
from qwen3_rl.npugraph.keys import check_keys
from qwen3_rl.npugraph.settings import completed

ON = {"enable_npugraph_ex": True}
SAM = {"method": "sam", "num_speculative_tokens": 3}


def resolved(engine=None, environment=None, **rollout):
    rollout = {"enforce_eager": False, "max_num_seqs": 16, "max_num_batched_tokens": 256, **rollout}
    return completed(engine or {}, rollout, environment or {})


def test_the_switch_alone_is_enough():
    assert resolved({"additional_config": ON})["compilation_config"] == {
        "cudagraph_mode": "FULL_DECODE_ONLY",
        "cudagraph_capture_sizes": [1, 2, 4, 8, 12, 16],
    }


def test_with_drafts_the_sizes_are_multiples():
    engine = {"additional_config": ON, "speculative_config": SAM}
    assert resolved(engine)["compilation_config"]["cudagraph_capture_sizes"] == [4, 8, 16, 32, 48, 64]
    limited = resolved(engine, {"VLLM_SPECULATIVE_BATCH_SIZE_THRE": "4"})
    assert limited["compilation_config"]["cudagraph_capture_sizes"] == [4, 8, 16]


def test_what_is_given_stays():
    given = {"cudagraph_mode": "FULL", "cudagraph_capture_sizes": [8], "cudagraph_num_of_warmups": 2}
    assert resolved({"additional_config": ON, "compilation_config": given})["compilation_config"] == given
    sizes = resolved({"additional_config": ON}, cudagraph_capture_sizes=[2, 4])["compilation_config"]
    assert sizes["cudagraph_capture_sizes"] == [2, 4]


def test_json_is_read_like_a_dictionary():
    engine = {"additional_config": '{"enable_npugraph_ex": true}', "compilation_config": '{"cudagraph_mode": "FULL"}'}
    assert resolved(engine)["compilation_config"]["cudagraph_mode"] == "FULL"


def test_without_the_switch_nothing_is_touched():
    engine = {"speculative_config": SAM, "compilation_config": {"cudagraph_mode": "PIECEWISE"}}
    assert resolved(engine) == engine
    assert resolved(engine, {"VLLM_ENABLE_GRAPH_MODE": "0"}, enforce_eager=True) == engine


def test_without_drafts_the_limit_is_not_looked_at():
    for limit in ("0", "4", "many"):
        found = resolved({"additional_config": ON}, {"VLLM_SPECULATIVE_BATCH_SIZE_THRE": limit})
        assert found["compilation_config"]["cudagraph_capture_sizes"][-1] == 16


def compiled(**compilation):
    return {"additional_config": ON, "compilation_config": compilation}


REFUSED = [
    ({"additional_config": ON}, {}, {"enforce_eager": True}, r"enable_npugraph_ex with rollout.enforce_eager=True"),
    (compiled(cudagraph_mode="PIECEWISE"), {}, {}, r"enable_npugraph_ex with cudagraph_mode=PIECEWISE"),
    (compiled(mode=0), {}, {}, r"enable_npugraph_ex with compilation_config.mode=0"),
    (compiled(cudagraph_capture_sizes=[32]), {}, {}, r"size 32 is never reached: max_num_seqs \* 1 tokens are 16"),
    (compiled(cudagraph_capture_sizes=[8, 4]), {}, {}, r"not in rising order"),
    (
        compiled(cudagraph_capture_sizes=[4]),
        {},
        {"cudagraph_capture_sizes": [8]},
        r"rollout.*and compilation_config.*dif",
    ),
    ({**compiled(cudagraph_capture_sizes=[6]), "speculative_config": SAM}, {}, {}, r"\[6\] are no multiples of 4"),
    (
        {**compiled(cudagraph_mode="FULL", cudagraph_capture_sizes=[6]), "speculative_config": SAM},
        {},
        {},
        r"no multiples",
    ),
    (
        {"additional_config": ON},
        {"VLLM_ENABLE_GRAPH_MODE": "0"},
        {},
        r"MODE=0 with additional_config.enable_npugraph_ex",
    ),
    ({}, {"VLLM_ENABLE_GRAPH_MODE": "1"}, {"enforce_eager": True}, r"MODE=1 with rollout.enforce_eager=True"),
    ({}, {"VLLM_ENABLE_GRAPH_MODE": "on"}, {}, r"'on' is neither 0 nor 1"),
    (
        {"additional_config": ON},
        {"ASCEND_LAUNCH_BLOCKING": "1"},
        {},
        r"enable_npugraph_ex with ASCEND_LAUNCH_BLOCKING=1",
    ),
    (
        {"additional_config": ON, "speculative_config": {**SAM, "num_speculative_tokens": 16}},
        {},
        {"max_num_batched_tokens": 4096},
        r"enable_npugraph_ex with num_speculative_tokens=16",
    ),
    (
        {"additional_config": ON, "speculative_config": SAM},
        {"VLLM_SPECULATIVE_BATCH_SIZE_THRE": "0"},
        {},
        r"enable_npugraph_ex with VLLM_SPECULATIVE_BATCH_SIZE_THRE=0",
    ),
    (
        {"additional_config": {"enable_one_token_graphs": True}},
        {},
        {},
        r"one_token_graphs without .*enable_npugraph_ex",
    ),
    ({"additional_config": {**ON, "enable_one_token_graphs": True}}, {}, {}, r"graphs without speculative_config"),
    (
        {"additional_config": {**ON, "enable_one_token_graphs": True}, "speculative_config": SAM},
        {},
        {"data_parallel_size": 2},
        r"enable_one_token_graphs with data_parallel_size=2",
    ),
    ({"additional_config": {"npugraph_ex_config": {"enable": True}}}, {}, {}, r"npugraph_ex_config: .*0\.14"),
    # Values that can't be meant, each under its own name.
    ({}, {}, {"cudagraph_capture_sizes": [4, 0]}, r"rollout.cudagraph_capture_sizes\[1\] = 0 is no whole number of 1"),
    ({}, {}, {"cudagraph_capture_sizes": [-4]}, r"capture_sizes\[0\] = -4 is no"),
    ({}, {}, {"cudagraph_capture_sizes": [1.5]}, r"capture_sizes\[0\] = 1.5 is no"),
    ({}, {}, {"cudagraph_capture_sizes": ["4 8"]}, r"capture_sizes\[0\] = '4 8' is no"),
    (compiled(cudagraph_capture_sizes=5), {}, {}, r"compilation_config.cudagraph_capture_sizes = 5 is no list"),
    (compiled(cudagraph_capture_sizes="4"), {}, {}, r"capture_sizes = '4' is no list"),
    ({"compilation_config": "abc"}, {}, {}, r"compilation_config = 'abc' is no mapping"),
    ({}, {}, {"max_num_seqs": 0}, r"^rollout.max_num_seqs = 0 is no"),
    ({}, {}, {"max_num_seqs": "x"}, r"^rollout.max_num_seqs = 'x' is no"),
    ({"speculative_config": {**SAM, "num_speculative_tokens": 3.5}}, {}, {}, r"num_speculative_tokens = 3.5 is no"),
    ({"speculative_config": SAM}, {"VLLM_SPECULATIVE_BATCH_SIZE_THRE": "²"}, {}, r"_THRE = '²' is no number"),
    ({"additional_config": {"enable_npugraph_ex": "yes"}}, {}, {}, r"config.enable_npugraph_ex: 'yes' is neither True"),
    ({"additional_config": {**ON, "pad_graph_attention": 1}}, {}, {}, r"pad_graph_attention: 1 is neither True"),
    ({"additional_config": {"ascend_compilation_config": 5}}, {}, {}, r"ascend_compilation_config: 5 is no mapping"),
    (
        {"additional_config": ON, "speculative_config": SAM},
        {},
        {"max_num_batched_tokens": 3},
        r"^rollout.max_num_batched_tokens = 3 is less than the 4 tokens [^;]*: raise it \(next",
    ),
    (
        {"additional_config": ON, "speculative_config": {**SAM, "num_speculative_tokens": 1000000}},
        {},
        {},
        r"^enable_npugraph_ex with num_speculative_tokens=1000000[^;]*$",
    ),
]


@pytest.mark.parametrize(("engine", "environment", "rollout", "message"), REFUSED, ids=[case[3] for case in REFUSED])
def test_a_contradiction_names_both_settings(engine, environment, rollout, message):
    with pytest.raises(UserError, match=message):
        resolved(engine, environment, **rollout)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"enable_npugraphex": True}, "enable_npugraphex: .* the nearest is enable_npugraph_ex"),
        ({"npugraph_ex_config": {"enable": True}}, r"a key of vllm-ascend 0\.14"),
        ({"ascend_compilation_config": {"enable_npugraph_ex": True}}, r"a key of vllm-ascend 0\.18"),
        ({"ascend_compilation_config": {"fuse": True}}, "ascend_compilation_config.fuse: .* nearest is fuse_"),
        ({"torchair_graph_config": {}}, r"0\.11 and older"),
    ],
)
def test_keys_that_nobody_reads(config, message):
    with pytest.raises(ValueError, match=message):
        check_keys(config)


def test_keys_of_this_release():
    check_keys({"enable_npugraph_ex": True, "ascend_compilation_config": {"fuse_norm_quant": False}, "refresh": True})
    check_keys(None)
