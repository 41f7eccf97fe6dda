"""veRL's rollout server hands out what the drafter in vLLM's worker has counted."""

import asyncio
from types import SimpleNamespace

from engine_lab import SAM, drafted, engine, generate, greedy, prompts_of

from qwen3_rl.sam.metrics import StepMetrics


def test_counters_reach_the_server(tiny):
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer

    llm = engine(tiny, SAM, worker_extension_cls="verl.workers.rollout.vllm_rollout.utils.vLLMColocateWorkerExtension")

    async def collective_rpc(method):
        return llm.collective_rpc(method)

    server = SimpleNamespace(engine=SimpleNamespace(collective_rpc=collective_rpc))
    generate(llm, prompts_of(4) * 2, greedy(80))
    counters = asyncio.run(vLLMHttpServer.spec_decode_counters(server))
    assert counters == drafted(llm)
    # All that the metrics are made of is there.
    step = StepMetrics().step([counters])
    assert 0 < step["rollout/spec_decode/acceptance_rate"] <= 1
    assert 0 < step["rollout/spec_decode/mean_accepted"] <= 5
    assert 0 < step["rollout/spec_decode/group_hits"] <= 1
    assert step["rollout/spec_decode/gate"] == 0


def test_an_engine_without_a_drafter_counts_nothing(tiny):
    llm = engine(tiny, None, worker_extension_cls="verl.workers.rollout.vllm_rollout.utils.vLLMColocateWorkerExtension")
    assert llm.collective_rpc("spec_decode_counters") == [{}]
