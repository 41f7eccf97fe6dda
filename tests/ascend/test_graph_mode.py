"""Graph mode on vllm-ascend: keys, the platform's choice in every process, static kernels, the TP group's options."""

import logging
import pickle
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import vllm_ascend
from runner_lab import resolved_config
from vllm_ascend.ascend_config import clear_ascend_config, get_ascend_config, init_ascend_config
from vllm_ascend.compilation import compiler_interface
from vllm_ascend.utils import get_default_buffer_config, get_hccl_config_for_pg_options

from qwen3_rl.npugraph.keys import COMPILATION_KEYS, UPSTREAM

SAM = {"method": "sam", "num_speculative_tokens": 3}
ON = {"enable_npugraph_ex": True}


def test_keys_that_nobody_reads_are_refused(tmp_path):
    for key, message in (
        ("npugraph_ex_config", r"0\.14, which 0\.13\.0 silently ignores"),
        ("enable_npugraphex", "the nearest is enable_npugraph_ex"),
    ):
        with pytest.raises(ValueError, match=message):
            resolved_config(tmp_path, additional_config={key: {"enable": True}})


def test_the_list_of_keys_is_the_sources():
    source = (Path(vllm_ascend.__file__).parent / "ascend_config.py").read_text()
    assert set(re.findall(r"""additional_config\.get\(\s*"(\w+)\"""", source)) == UPSTREAM
    for key in COMPILATION_KEYS:
        assert f"{key}: bool" in source


DOWNGRADES = [
    ({"cudagraph_mode": "FULL_DECODE_ONLY"}, False, True),
    ({"cudagraph_mode": "FULL"}, False, True),
    ({}, False, False),
    ({"cudagraph_mode": "PIECEWISE"}, False, False),
    ({"cudagraph_mode": "NONE"}, False, False),
    ({"cudagraph_mode": "FULL_DECODE_ONLY", "mode": 0}, False, False),
    ({"cudagraph_mode": "FULL_DECODE_ONLY"}, True, False),
]


def test_a_downgrade_is_said_and_reaches_workers(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    for compilation, enforce_eager, kept in DOWNGRADES:
        caplog.clear()
        config = resolved_config(
            tmp_path, additional_config=dict(ON), compilation_config=compilation, enforce_eager=enforce_eager
        )
        here = get_ascend_config().enable_npugraph_ex
        clear_ascend_config()  # as in a process that was spawned
        there = init_ascend_config(pickle.loads(pickle.dumps(config))).enable_npugraph_ex
        said = "enable_npugraph_ex=True has no effect" in caplog.text
        assert (here, there, said) == (kept, kept, not kept), compilation


def static_kernel_compilations(monkeypatch, config, batches):
    """The batch sizes for which torchair's own runner compiles kernels, of those that a toy model is called with."""
    from torchair._acl_concrete_graph import static_kernel

    compiled = []
    monkeypatch.setattr(torch.npu, "set_compile_mode", lambda **kwargs: None)
    monkeypatch.setattr(torch.npu, "current_device", lambda: 0)
    monkeypatch.setattr(
        static_kernel,
        "compile_static_kernel",
        lambda runner, *args, **kwargs: compiled.append(next(arg for arg in args if isinstance(arg, int))),
    )
    compiler = compiler_interface.AscendCompiler()
    compiler.compute_hash(SimpleNamespace(compute_hash=lambda: "", **vars(config)))
    monkeypatch.setattr(compiler_interface, "get_ascend_config", lambda: SimpleNamespace(enable_npugraph_ex=True))

    def backend(graph, example_inputs):
        return compiler.compile(graph, example_inputs, {}, None)[0]

    torch._dynamo.reset()
    model = torch.compile(lambda x: (x * 2 + 1,), backend=backend, dynamic=True)
    for size in batches:
        x = torch.ones(size, 4)
        torch._dynamo.mark_dynamic(x, 0)
        assert torch.equal(model(x)[0], x * 2 + 1)
    return compiled


def settings(**additional):
    """As vLLM holds them when the model is compiled: the sizes are not rounded for drafts yet."""
    return SimpleNamespace(
        additional_config={**ON, **additional},
        speculative_config=SimpleNamespace(num_speculative_tokens=3),
        scheduler_config=SimpleNamespace(max_num_seqs=4),
        compilation_config=SimpleNamespace(cudagraph_capture_sizes=[2, 8, 12, 64]),
    )


@pytest.mark.usefixtures("torchair")
def test_static_kernels_are_compiled_for_captured_sizes_only(monkeypatch):
    batches = [4, 5, 8, 9, 12, 64, 8]
    assert static_kernel_compilations(monkeypatch, settings(), batches) == []
    assert static_kernel_compilations(monkeypatch, settings(enable_static_kernel=True), batches) == [4, 8, 12]


def test_the_tp_groups_expansion_mode_keeps_its_buffer(monkeypatch):
    buffer = get_default_buffer_config()
    assert get_hccl_config_for_pg_options("tp") == buffer
    monkeypatch.setenv("VLLM_ASCEND_TP_HCCL_OP_EXPANSION_MODE", "3")
    assert get_hccl_config_for_pg_options("tp") == {**buffer, "hccl_op_expansion_mode": 3}
    assert get_hccl_config_for_pg_options("pp") == buffer
    assert get_hccl_config_for_pg_options("mc2") is None
