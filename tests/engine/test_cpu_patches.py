"""One behaviour a patch that lets vLLM speculate on a CPU."""

from types import SimpleNamespace

import pytest
from engine_lab import SAM, drafted, engine, engine_counts, generate, greedy, prompts_of
from vllm import SamplingParams
from vllm.v1.worker import cpu_model_runner


@pytest.mark.parametrize(("method", "taken"), [("ngram", True), ("suffix", True), ("sam", True), ("eagle", False)])
def test_the_cpu_takes_methods_without_a_draft_model(method, taken, monkeypatch):
    import torch

    def base(self, vllm_config, device):
        self.speculative_config = SimpleNamespace(method=method)

    monkeypatch.setattr(cpu_model_runner.GPUModelRunner, "__init__", base)
    monkeypatch.setattr(cpu_model_runner.CPUModelRunner, "_postprocess_tensors", lambda self: None)
    if taken:
        cpu_model_runner.CPUModelRunner(None, torch.device("cpu"))
    else:
        with pytest.raises(AssertionError, match="'eagle' needs a draft model"):
            cpu_model_runner.CPUModelRunner(None, torch.device("cpu"))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_drafts_are_verified_on_a_cpu(tiny, temperature):
    llm = engine(tiny, SAM)
    params = SamplingParams(temperature=temperature, top_k=2, max_tokens=60, ignore_eos=True)
    outputs = generate(llm, prompts_of(3), params)
    assert [len(tokens) for tokens in outputs] == [60, 60, 60]
    assert drafted(llm)["draft_tokens"] > 0


def test_the_triton_placeholder_rounds_up():
    from vllm.triton_utils.importing import TritonPlaceholder

    rounded = [TritonPlaceholder().next_power_of_2(n) for n in (1, 2, 3, 4, 5, 151936)]
    assert rounded == [1, 2, 4, 4, 8, 262144]


def test_the_in_process_engine_verifies_drafts(tiny):
    llm = engine(tiny, SAM)
    generate(llm, prompts_of(2), greedy(100))
    counted = engine_counts(llm)
    stats = drafted(llm)
    assert counted == {name: stats[name] for name in ("draft_tokens", "accepted_tokens")}


@pytest.mark.parametrize("speculation", [None, SAM], ids=["off", "sam"])
def test_a_seed_survives_chunked_prefill(tiny, speculation):
    params = SamplingParams(temperature=1.0, seed=7, max_tokens=8, ignore_eos=True)
    (prompt,) = prompts_of(1, tokens=100)
    outputs = [
        generate(
            engine(tiny, speculation, max_num_batched_tokens=batched, enable_prefix_caching=False), [prompt], params
        )
        for batched in (512, 40)
    ]
    assert outputs[0] == outputs[1]
