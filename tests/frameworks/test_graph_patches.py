"""veRL's patches for graph mode: each test fails on the tree without its patch."""

import asyncio
from types import SimpleNamespace

import pytest

from qwen3_rl.errors import UserError

torch = pytest.importorskip("torch", reason="needs build_project.sh --target cpu")

ENGINE = {"speculative_config": {"method": "sam", "num_speculative_tokens": 3}}


class Stop(Exception):
    """Ends the start of the server where vLLM's command line is complete."""


def command_line(monkeypatch, engine: dict | None = None, **rollout) -> SimpleNamespace:
    """What vLLM's own parser makes of the arguments that veRL's server starts it with."""
    from verl.workers.config import RolloutConfig
    from verl.workers.rollout.vllm_rollout import vllm_async_server

    parsed = []

    def parse(parser, args):
        parsed.append(original(parser, args))
        raise Stop

    original = vllm_async_server.FlexibleArgumentParser.parse_args
    monkeypatch.setattr(vllm_async_server.FlexibleArgumentParser, "parse_args", parse)
    server = object.__new__(vllm_async_server.vLLMHttpServer)
    server.config = RolloutConfig(
        name="vllm",
        enforce_eager=False,
        max_num_seqs=16,
        max_model_len=128,
        tensor_model_parallel_size=1,
        engine_kwargs={"vllm": engine or {}},
        **rollout,
    )
    server.model_config = SimpleNamespace(local_path="/m", trust_remote_code=False, lora={}, lora_rank=0)
    server.profiler_controller = SimpleNamespace(config=None, tool_config=None)
    monkeypatch.setattr(vllm_async_server, "build_vllm_profiler_args", lambda *args: {})
    server.node_rank = server.replica_rank = 0
    server.nnodes = 1
    with pytest.raises((Stop, SystemExit)):
        asyncio.run(server.launch_server())
    assert parsed, "vLLM's parser refused the arguments"
    return parsed[0]


def test_capture_sizes_reach_the_engine(monkeypatch):
    arguments = command_line(monkeypatch, cudagraph_capture_sizes=[4, 8])
    assert arguments.compilation_config.cudagraph_capture_sizes == [4, 8]


def test_the_switch_brings_mode_and_sizes(monkeypatch):
    arguments = command_line(monkeypatch, {**ENGINE, "additional_config": {"enable_npugraph_ex": True}})
    assert arguments.compilation_config.cudagraph_mode.name == "FULL_DECODE_ONLY"
    assert arguments.compilation_config.cudagraph_capture_sizes == [4, 8, 16, 32, 48, 64]
    assert arguments.additional_config == {"enable_npugraph_ex": True}


def test_a_contradiction_ends_the_start(monkeypatch):
    monkeypatch.setenv("VLLM_ENABLE_GRAPH_MODE", "0")
    with pytest.raises(UserError, match=r"VLLM_ENABLE_GRAPH_MODE=0 .*enable_npugraph_ex"):
        command_line(monkeypatch, {"additional_config": {"enable_npugraph_ex": True}})


def test_without_the_switch_nothing_changes(monkeypatch):
    arguments = command_line(monkeypatch)
    assert arguments.compilation_config.cudagraph_mode.name == "FULL_AND_PIECEWISE"
    assert arguments.compilation_config.cudagraph_capture_sizes is None


def test_expandable_segments_on_an_npu(monkeypatch):
    from verl.utils import device

    said = []
    npu = SimpleNamespace(memory=SimpleNamespace(_set_allocator_settings=said.append))
    monkeypatch.setattr(device, "is_cuda_available", False)
    monkeypatch.setattr(device, "is_npu_available", True)
    monkeypatch.setattr(torch, "npu", npu, raising=False)
    device.set_expandable_segments(True)
    assert said == []
    monkeypatch.setenv("VERL_NPU_EXPANDABLE_SEGMENTS", "1")
    device.set_expandable_segments(False)
    assert said == ["expandable_segments:False"]
