"""SAM in vllm-ascend: from the engine's arguments to the drafts that the model runner hands to the scheduler."""

import pytest
from runner_lab import MAX_MODEL_LEN, K, add_request, engine_config, model_runner, scheduled_after, step
from vllm.config import CUDAGraphMode
from vllm_ascend.spec_decode.interface import Proposer
from vllm_ascend.utils import speculative_enable_dispatch_gmm_combine_decode

from qwen3_rl.sam.ascend import AscendSamProposer
from qwen3_rl.sam.gate import Gate

UNGATED = {"sam_config": {"gate": False}}


def test_the_runner_drafts_with_sam(tmp_path):
    runner = model_runner(engine_config(tmp_path, "NONE", **UNGATED))
    assert isinstance(runner.drafter, AscendSamProposer)
    assert isinstance(runner.drafter, Proposer)
    add_request(runner, "a", [1, 2, 3, 4, 5, 6, 7, 1, 2])
    add_request(runner, "b", [11, 12, 13])
    assert step(runner, [[3], [14]]) == [[4, 5, 6], []]
    # a accepted two of its three drafts; b's token is new again
    assert step(runner, [[4, 5, 90], [15]], verified={"a": [4, 5, 6]}) == [[], []]


def waiting_runner(tmp_path, cudagraph_mode="FULL_DECODE_ONLY", **speculative):
    """A runner whose requests a and b are about to sample; a's text repeats, b's does not."""
    runner = model_runner(engine_config(tmp_path, cudagraph_mode, **{**UNGATED, **speculative}))
    add_request(runner, "a", [1, 2, 3, 4, 5, 6, 7, 1, 2])
    add_request(runner, "b", [11, 12, 13])
    return runner


def test_drafts_are_padded_where_only_uniform_batches_have_graphs(tmp_path):
    runner = waiting_runner(tmp_path)
    dispatch = runner.cudagraph_dispatcher.dispatch
    assert dispatch(5, uniform_decode=False, has_lora=False)[0] == CUDAGraphMode.NONE
    assert dispatch(2 * (K + 1), uniform_decode=True, has_lora=False)[0] == CUDAGraphMode.FULL
    assert step(runner, [[3], [14]]) == [[4, 5, 6], [14, 14, 14]]


def test_the_gate_is_told_that_drafts_will_be_filled_up(tmp_path, monkeypatch):
    """So it weighs them against the price of k tokens for each request."""
    told = []
    choose = Gate.choose
    monkeypatch.setattr(Gate, "choose", lambda *args, **more: told.append(more["padded"]) or choose(*args, **more))
    step(waiting_runner(tmp_path), [[3], [14]])
    step(waiting_runner(tmp_path, "NONE"), [[3], [14]])
    assert told == [True, False]


def test_what_was_filled_in_is_not_counted_as_a_draft(tmp_path):
    runner = waiting_runner(tmp_path)
    drafts = step(runner, [[3], [14]])
    step(runner, [[4, 5, 90], [15]], verified=dict(zip("ab", drafts, strict=True)))
    stats = runner.drafter.stats()
    assert (stats["draft_tokens"], stats["accepted_tokens"]) == (3, 2)


def test_no_drafts_stay_no_drafts(tmp_path):
    runner = waiting_runner(tmp_path)
    assert step(runner, [[90], [14]]) == [[], []]


def test_no_padding_without_graphs(tmp_path):
    assert step(waiting_runner(tmp_path, "NONE"), [[3], [14]]) == [[4, 5, 6], []]


def test_no_padding_where_ragged_batches_have_graphs(tmp_path):
    runner = waiting_runner(tmp_path, "FULL", num_speculative_tokens=4)
    dispatch = runner.cudagraph_dispatcher.dispatch
    assert dispatch(6, uniform_decode=False, has_lora=False)[0] == CUDAGraphMode.FULL
    with pytest.raises(AssertionError):  # no graph of a multiple of five tokens: padding would stop the engine
        dispatch(10, uniform_decode=True, has_lora=False)
    assert step(runner, [[3], [14]]) == [[4, 5, 6, 7], []]


def test_no_padding_beyond_the_largest_graph(tmp_path):
    runner = waiting_runner(tmp_path)
    runner.compilation_config.max_cudagraph_capture_size = 2 * (K + 1) - 1
    assert step(runner, [[3], [14]]) == [[4, 5, 6], []]


def test_no_padding_while_a_prompt_is_being_computed(tmp_path):
    runner = waiting_runner(tmp_path)
    runner.discard_request_indices.np[0] = 1  # b's token does not count yet
    runner.num_discarded_requests = 1
    assert step(runner, [[3], [14]]) == [[4, 5, 6], []]


def test_the_scheduler_takes_padded_drafts_whole_up_to_the_models_length(tmp_path):
    config = engine_config(tmp_path)
    drafts = [[4, 5, 6], [14] * K]
    longest = [1] * (MAX_MODEL_LEN - K - 2)  # with the token that was sampled: the longest that is padded for
    assert scheduled_after(config, [[1, 2], longest], drafts) == [K + 1, K + 1]
    assert scheduled_after(config, [[1, 2], [1, *longest]], drafts) == [K + 1, K]


@pytest.mark.parametrize(("length", "fits"), [(MAX_MODEL_LEN - K - 1, True), (MAX_MODEL_LEN - K, False)])
def test_no_padding_beyond_the_models_length(tmp_path, length, fits):
    runner = waiting_runner(tmp_path)
    add_request(runner, "c", [20 + i for i in range(length - 1)])
    drafts = step(runner, [[3], [14], [15]])
    assert [len(draft) for draft in drafts] == ([K] * 3 if fits else [K, 0, 0])


def test_no_padding_beside_a_request_that_must_not_be_speculated(tmp_path):
    runner = waiting_runner(tmp_path)
    runner.input_batch.spec_decode_unsupported_reqs.add("b")
    assert step(runner, [[3], [14]]) == [[4, 5, 6], []]


def test_the_fused_moe_operator_stays_on(tmp_path):
    assert speculative_enable_dispatch_gmm_combine_decode(engine_config(tmp_path))
