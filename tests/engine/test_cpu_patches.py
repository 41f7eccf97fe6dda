"""One behaviour a patch that lets vLLM speculate on a CPU, with a method of vLLM's own where one will do."""

from types import SimpleNamespace

import pytest
from engine_lab import SAM, engine, engine_counts, generate, greedy, prompts_of
from vllm import SamplingParams
from vllm.sampling_params import StructuredOutputsParams

NGRAM = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 1}


def test_the_cpu_takes_methods_without_a_draft_model(monkeypatch):
    import torch
    from vllm.v1.worker import cpu_model_runner

    def runner(method):
        def base(self, vllm_config, device):
            self.speculative_config = SimpleNamespace(method=method)

        monkeypatch.setattr(cpu_model_runner.GPUModelRunner, "__init__", base)
        monkeypatch.setattr(cpu_model_runner.CPUModelRunner, "_postprocess_tensors", lambda self: None)
        return cpu_model_runner.CPUModelRunner(None, torch.device("cpu"))

    for method in ("ngram", "suffix", "sam"):
        runner(method)
    with pytest.raises(AssertionError, match="'eagle' needs a draft model"):
        runner("eagle")


def test_the_in_process_engine_verifies_drafts(tiny, monkeypatch):
    from vllm.v1.core.sched.scheduler import Scheduler

    seen = []
    monkeypatch.setattr(Scheduler, "update_draft_token_ids", lambda self, drafts: seen.append(drafts))
    generate(engine(tiny, NGRAM), prompts_of(2), greedy(60))
    assert any(draft for drafts in seen for draft in drafts.draft_token_ids)


def test_drafts_are_verified_on_a_cpu(tiny):
    llm = engine(tiny, NGRAM)
    for temperature in (0.0, 0.8):
        before = engine_counts(llm)
        params = SamplingParams(temperature=temperature, top_k=2, max_tokens=60, ignore_eos=True)
        assert [len(tokens) for tokens in generate(llm, prompts_of(3), params)] == [60, 60, 60]
        after = engine_counts(llm)
        assert 0 < after["accepted_tokens"] - before["accepted_tokens"] < after["draft_tokens"] - before["draft_tokens"]


def seeded(tiny, speculation, batched: int) -> list[list[int]]:
    llm = engine(tiny, speculation, max_num_batched_tokens=batched, enable_prefix_caching=False)
    params = SamplingParams(temperature=1.0, seed=7, max_tokens=8, ignore_eos=True)
    return generate(llm, prompts_of(1, tokens=100), params)


def test_a_seed_survives_chunked_prefill(tiny):
    assert seeded(tiny, None, 40) == seeded(tiny, None, 512)


def test_a_seed_survives_chunked_prefill_under_speculation(tiny):
    assert seeded(tiny, SAM, 40) == seeded(tiny, SAM, 512)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_grammar_beside_other_requests(tiny, dtype):
    llm = engine(tiny, None, dtype=dtype)
    constrained = greedy(10, structured_outputs=StructuredOutputsParams(regex="(ab)+"))
    outputs = generate(llm, prompts_of(2), [constrained, greedy(10)])
    assert llm.get_tokenizer().decode(outputs[0]) == "ababababab"
