"""vllm-ascend's model runner without a device: its real batch and methods around a tiny Qwen3's real configuration."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput, SamplerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager
from vllm.v1.worker.gpu_input_batch import CachedRequestState
from vllm_ascend.ascend_config import clear_ascend_config
from vllm_ascend.worker.model_runner_v1 import NPUModelRunner
from vllm_ascend.worker.npu_input_batch import NPUInputBatch

from qwen3_rl.npugraph.one_token import add_one_token_keys

K = 3
MAX_MODEL_LEN = 64
MAX_NUM_SEQS = 4
TINY = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 128,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}


def resolved_config(folder: Path, **arguments) -> VllmConfig:
    """What the engine makes of its arguments on an NPU, for a tiny Qwen3, as the first engine of its process."""
    clear_ascend_config()
    (folder / "config.json").write_text(json.dumps(TINY))
    return EngineArgs(
        model=str(folder),
        skip_tokenizer_init=True,
        **{
            "max_model_len": MAX_MODEL_LEN,
            "max_num_seqs": MAX_NUM_SEQS,
            "max_num_batched_tokens": MAX_MODEL_LEN,
            **arguments,
        },
    ).create_engine_config()


def engine_config(
    folder: Path, cudagraph_mode: str = "FULL_DECODE_ONLY", additional: dict | None = None, **speculative
) -> VllmConfig:
    """By default the method sam with K tokens."""
    return resolved_config(
        folder,
        speculative_config={"method": "sam", "num_speculative_tokens": K, **speculative},
        compilation_config={"cudagraph_mode": cudagraph_mode},
        additional_config=additional or {},
    )


def model_runner(config: VllmConfig) -> NPUModelRunner:
    """The parts of a runner that a step's end uses; its drafter is what the runner itself makes for ``config``."""
    runner = NPUModelRunner.__new__(NPUModelRunner)
    runner.vllm_config = config
    runner.speculative_config = config.speculative_config
    runner.compilation_config = config.compilation_config
    runner.max_model_len = MAX_MODEL_LEN
    runner.use_async_scheduling = False
    runner.device = torch.device("cpu")
    runner.requests = {}
    runner.discard_request_indices = SimpleNamespace(np=np.zeros(MAX_NUM_SEQS, np.int64))
    runner.num_discarded_requests = 0
    runner.num_spec_tokens = config.speculative_config.num_speculative_tokens
    runner.decode_token_per_req = runner.uniform_decode_query_len = 1 + runner.num_spec_tokens
    runner.input_batch = NPUInputBatch(
        max_num_reqs=MAX_NUM_SEQS,
        max_model_len=MAX_MODEL_LEN,
        max_num_batched_tokens=MAX_MODEL_LEN,
        device=runner.device,
        pin_memory=False,
        vocab_size=TINY["vocab_size"],
        block_sizes=[16],
        kernel_block_sizes=[[16]],
        is_spec_decode=True,
        num_speculative_tokens=runner.num_spec_tokens,
    )
    runner.cudagraph_dispatcher = CudagraphDispatcher(config)
    make_graph_keys(runner)
    runner.drafter = runner._get_drafter()
    return runner


def make_graph_keys(runner: NPUModelRunner) -> None:
    """As GPUModelRunner._check_and_update_cudagraph_mode does once the attention backend is known."""
    compilation = runner.compilation_config
    mode = compilation.cudagraph_mode
    if mode.separate_routine():
        compilation.adjust_cudagraph_sizes_for_spec_decode(runner.num_spec_tokens + 1, 1)
    runner.cudagraph_dispatcher.initialize_cudagraph_keys(mode, runner.num_spec_tokens + 1)
    add_one_token_keys(runner.cudagraph_dispatcher)


def add_request(runner: NPUModelRunner, req_id: str, prompt: list[int], **params) -> None:
    state = CachedRequestState(
        req_id=req_id,
        prompt_token_ids=prompt,
        mm_features=[],
        sampling_params=SamplingParams(**params),
        pooling_params=None,
        generator=None,
        block_ids=([],),
        num_computed_tokens=0,
        output_token_ids=[],
    )
    runner.requests[req_id] = state
    runner.input_batch.add_request(state)
    runner.input_batch.refresh_metadata()


def step(runner: NPUModelRunner, sampled: list[list[int]], verified: dict[str, list[int]] | None = None):
    """The end of one step that sampled these tokens: the runner's own bookkeeping, then its drafts."""
    width = max(map(len, sampled))
    tokens = torch.tensor([row + [-1] * (width - len(row)) for row in sampled], dtype=torch.int32)
    scheduled = SimpleNamespace(scheduled_spec_decode_tokens=verified or {}, num_scheduled_tokens={})
    runner._to_list = lambda tokens: tokens.tolist()  # the runner's goes through pinned memory
    runner._get_prompt_logprobs_dict = lambda *args: {}
    output = SamplerOutput(sampled_token_ids=tokens, logprobs_tensors=None)
    _, valid, *_ = runner._bookkeeping_sync(scheduled, output, None, torch.empty(0), 0, None)
    return runner.propose_draft_token_ids(valid, None, scheduled, None, None, 0, None, None)


def scheduler(config: VllmConfig, blocks: int = 64) -> Scheduler:
    """vLLM's scheduler of that engine, with memory for all requests."""
    config.cache_config.num_gpu_blocks = blocks
    config.cache_config.enable_prefix_caching = False
    spec = FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=8, dtype=torch.bfloat16)
    kv_cache = KVCacheConfig(
        num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
    )
    return Scheduler(config, kv_cache, StructuredOutputManager(config), block_size=16)


def scheduled_after(config: VllmConfig, prompts: list[list[int]], drafts: list[list[int]]) -> list[int]:
    """How many tokens of each prompt's request the step takes that follows a prefill and these drafts."""
    engine = scheduler(config)
    names = [str(i) for i in range(len(prompts))]
    for name, prompt in zip(names, prompts, strict=True):
        params = SamplingParams(max_tokens=MAX_MODEL_LEN)
        engine.add_request(Request(name, prompt, params, pooling_params=None, eos_token_id=None))
    first = engine.schedule()
    assert first.num_scheduled_tokens == {name: len(prompt) for name, prompt in zip(names, prompts, strict=True)}
    sampled = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: i for i, name in enumerate(names)},
        sampled_token_ids=[[7] for _ in names],
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[],
    )
    engine.update_from_output(first, sampled)
    engine.update_draft_token_ids(DraftTokenIds(names, drafts))
    taken = engine.schedule().num_scheduled_tokens
    return [taken[name] for name in names]
