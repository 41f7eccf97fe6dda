"""Which graph a step replays and with what attention parameters: the dispatcher, the captures, the replay."""

from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
import torch_npu
from runner_lab import K, engine_config, model_runner
from vllm.config import CUDAGraphMode
from vllm.forward_context import BatchDescriptor
from vllm.v1.worker.gpu_model_runner import GPUModelRunner
from vllm_ascend.compilation import acl_graph

from qwen3_rl.npugraph.attention import padded_lengths
from qwen3_rl.npugraph.one_token import enabled, set_query_len

NPU_ONLY = {"enable_one_token_graphs": True}
PADDED = {"pad_graph_attention": True}


def replayed_lengths(monkeypatch, additional):
    """The lengths that the attention of a graph of 16 tokens is given for three ragged requests, 13 tokens in all."""
    taken = []
    monkeypatch.setattr(torch.npu, "stream", lambda stream: nullcontext())
    for name in ("graph_task_update_begin", "graph_task_update_end"):
        monkeypatch.setattr(torch.npu, name, lambda *args: None, raising=False)
    operator = SimpleNamespace(out=lambda **kwargs: taken.append(kwargs))
    monkeypatch.setattr(torch_npu, "npu_fused_infer_attention_score", operator)
    monkeypatch.setattr(acl_graph, "_graph_params", None)
    acl_graph.set_graph_params([16])
    graph = acl_graph.get_graph_params()
    graph.attn_params[16].append((None,) * 13)
    graph.handles[16].append(None)
    graph.events[16].append(SimpleNamespace(record=lambda stream: None))
    layer = SimpleNamespace(seq_lens_list=[20, 30, 40], actual_seq_lengths_q=[4, 9, 13])
    config = SimpleNamespace(additional_config=additional, speculative_config=SimpleNamespace(num_speculative_tokens=K))
    context = SimpleNamespace(is_draft_model=False, attn_metadata={"layer": layer})
    acl_graph.update_attn_params(None, context, 16, config)
    (call,) = taken
    return call["actual_seq_lengths"], call["actual_seq_lengths_kv"]


def test_a_replay_has_the_lengths_of_its_graph(monkeypatch):
    assert replayed_lengths(monkeypatch, {}) == ([4, 9, 13], [20, 30, 40])
    assert replayed_lengths(monkeypatch, PADDED) == ([4, 9, 13, 16], [20, 30, 40, 0])


@pytest.mark.parametrize("tokens", range(13, 40))
def test_added_requests_are_as_long_as_captured_ones(tokens):
    config = SimpleNamespace(additional_config=PADDED, speculative_config=SimpleNamespace(num_speculative_tokens=K))
    ends, kv = padded_lengths([4, 9, 13], [20, 30, 40], tokens, config)
    assert ends[:3] == [4, 9, 13] and kv == [20, 30, 40] + [0] * (len(ends) - 3)
    steps = [end - start for start, end in pairwise(ends[2:])]
    assert ends[-1] == tokens and all(0 < step <= K + 1 for step in steps)
    assert len(steps) == -(-(tokens - 13) // (K + 1))


def graph_of(runner, tokens):
    """(mode, descriptor) of the step in which the requests have these numbers of tokens."""
    set_query_len(runner, tokens)
    uniform = len(set(tokens)) == 1 and tokens[0] == runner.uniform_decode_query_len
    return runner.cudagraph_dispatcher.dispatch(sum(tokens), uniform_decode=uniform, has_lora=False)


def captures(monkeypatch, runner):
    """(tokens, requests) of the graphs in the order in which vLLM's own capture makes them."""
    made = []

    def capture(self, compilation_cases, cudagraph_runtime_mode, uniform_decode):
        assert uniform_decode
        made.extend((tokens, tokens // self.uniform_decode_query_len) for tokens, _ in compilation_cases)

    monkeypatch.setattr(GPUModelRunner, "_capture_cudagraphs", capture)
    sizes = runner.compilation_config.cudagraph_capture_sizes
    runner.scheduler_config = runner.vllm_config.scheduler_config
    cases = [(size, False) for size in reversed(sizes)]
    runner._capture_cudagraphs(cases, CUDAGraphMode.FULL, True)
    return made


def test_one_token_steps_have_graphs_of_their_own(tmp_path, monkeypatch):
    runner = model_runner(engine_config(tmp_path, additional=dict(NPU_ONLY)))
    assert graph_of(runner, [1, 1, 1]) == (CUDAGraphMode.FULL, BatchDescriptor(4, 4, True))
    assert graph_of(runner, [K + 1]) == (CUDAGraphMode.FULL, BatchDescriptor(4, 1, True))
    assert graph_of(runner, [K + 1, 1])[0] == CUDAGraphMode.NONE
    made = captures(monkeypatch, runner)
    assert made == [(16, 4), (8, 2), (4, 1), (4, 4)]
    keys = runner.cudagraph_dispatcher.cudagraph_keys[CUDAGraphMode.FULL]
    assert {(key.num_tokens, key.num_reqs) for key in keys} == set(made)  # what is dispatched was captured


def test_without_the_switch_one_token_steps_run_eagerly(tmp_path, monkeypatch):
    runner = model_runner(engine_config(tmp_path))
    assert graph_of(runner, [1, 1, 1])[0] == CUDAGraphMode.NONE
    assert captures(monkeypatch, runner) == [(16, 4), (8, 2), (4, 1)]


def test_no_one_token_graphs_with_data_parallelism(tmp_path):
    config = engine_config(tmp_path, additional=dict(NPU_ONLY))
    assert enabled(config)
    config.parallel_config.data_parallel_size = 2
    assert not enabled(config)


def test_attention_parameters_of_equal_token_counts_stay_apart(monkeypatch):
    batch = SimpleNamespace(batch_descriptor=None)
    monkeypatch.setattr(acl_graph, "get_forward_context", lambda: batch)
    for name in ("_graph_params", "_one_token_graph_params"):
        monkeypatch.setattr(acl_graph, name, None)
    acl_graph.set_graph_params([4, 8])
    acl_graph.set_one_token_graph_params([4])
    batch.batch_descriptor = BatchDescriptor(4, 1, True)
    drafting = acl_graph.get_graph_params()
    acl_graph.update_graph_params_workspaces(4, "of four tokens")
    batch.batch_descriptor = BatchDescriptor(4, 4, True)
    single = acl_graph.get_graph_params()
    acl_graph.update_graph_params_workspaces(4, "of one token")
    assert drafting is not single
    assert drafting.workspaces == {4: "of four tokens", 8: None}
    assert single.workspaces == {4: "of one token"}
    batch.batch_descriptor = BatchDescriptor(4)
    assert acl_graph.get_graph_params() is drafting
