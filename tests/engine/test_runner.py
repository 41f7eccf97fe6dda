"""The proposer inside the patched model runner."""

import pytest
import torch
from engine_lab import SAM, K, drafted, engine, generate, greedy, model_runner, prompts_of, sam
from vllm import SamplingParams

from qwen3_rl.sam.proposer import BATCH_LIMIT


def test_the_runner_drafts_with_sam(tiny):
    llm = engine(tiny, SAM)
    generate(llm, prompts_of(4), greedy(80))
    stats = drafted(llm)
    assert stats["steps"] < 80
    assert stats["draft_tokens"] <= K * stats["drafts"]


def test_a_request_near_the_limit_stops_nobody_else(tiny):
    llm = engine(tiny, SAM, max_model_len=128, max_num_seqs=2)
    # One request is within k tokens of the limit all the time, since another takes its place when it ends.
    near = prompts_of(20, tokens=125)
    (far,) = prompts_of(1, first=50)
    params = [greedy(80)] + [greedy(3)] * len(near)
    steps = record_drafts(llm)
    generate(llm, [far, *near], params)
    beside = [drafts for drafts in steps if any(length >= 124 for _, length, _ in drafts)]
    assert any(size == K for drafts in beside for _, length, size in drafts if length < 124)
    assert all(length + size < 128 for drafts in steps for _, length, size in drafts if size)


def record_drafts(llm) -> list[list[tuple[str, int, int]]]:
    """For each step to come: (request, its tokens, its draft's length) of the batch."""
    runner, steps = model_runner(llm), []
    propose = runner.drafter.propose

    def recording(batch, *more):
        drafts = propose(batch, *more)
        lengths = batch.num_tokens_no_spec[: len(drafts)].tolist()
        steps.append(list(zip(batch.req_ids, lengths, map(len, drafts), strict=True)))
        return drafts

    runner.drafter.propose = recording
    return steps


@pytest.mark.parametrize(("price", "share"), [(0.0, 0.5), (3.0, 0.0)])
def test_the_gate_drafts_by_what_a_draft_costs(tiny, monkeypatch, price, share):
    """The engine's own drafts and acceptance; the clock says that a step takes 1 + price * (drafts a request)."""
    llm = engine(tiny, sam(gate=True))
    steps = record_drafts(llm)

    def now():
        return sum(1 + price * sum(size for _, _, size in step) / len(step) for step in steps)

    monkeypatch.setattr("qwen3_rl.sam.proposer.perf_counter", now)
    generate(llm, prompts_of(4), greedy(300))
    late = steps[len(steps) // 2 :]
    drafting = [step for step in late if any(size for _, _, size in step)]
    assert len(drafting) >= share * len(late)
    assert share or len(drafting) <= 0.1 * len(late)


def returned_logprobs(llm, prompts, params) -> tuple[list[list[int]], list[list[float]]]:
    outputs = [output.outputs[0] for output in llm.generate(prompts, params, use_tqdm=False)]
    tokens = [list(output.token_ids) for output in outputs]
    values = [
        [position[token].logprob for position, token in zip(output.logprobs, output.token_ids, strict=True)]
        for output in outputs
    ]
    return tokens, values


def true_logprobs(model, prompt: list[int], output: list[int], temperature: float, top_k: int) -> torch.Tensor:
    """log-probs of the output's tokens from transformers: of logits over temperature, of the top_k only (0: of all)."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + output])).logits[0, len(prompt) - 1 : -1] / temperature
    if top_k:
        logits = logits.masked_fill(logits < logits.topk(top_k).values[:, -1:], float("-inf"))
    return logits.log_softmax(-1).gather(1, torch.tensor(output)[:, None])[:, 0]


def test_requests_with_logprobs_are_drafted_for(tiny):
    check_logprobs(tiny, "processed_logprobs")


def test_raw_logprobs_are_the_models(tiny):
    check_logprobs(tiny, "raw_logprobs")


def check_logprobs(tiny, mode: str) -> None:
    from transformers import Qwen3ForCausalLM

    reference = Qwen3ForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    llm = engine(tiny, SAM, logprobs_mode=mode)
    prompts = prompts_of(8)
    # Greedy and sampled ones in one batch; without and with top_k.
    kinds = [(0.0, 0), (0.8, 0), (0.5, 3), (0.3, 2)] * 2
    params = [
        SamplingParams(temperature=temperature, top_k=top_k, logprobs=0, max_tokens=100, ignore_eos=True)
        for temperature, top_k in kinds
    ]
    tokens, logprobs = returned_logprobs(llm, prompts, params)
    stats = drafted(llm)
    assert stats["accepted_tokens"] < stats["draft_tokens"], "none was refused"
    for prompt, output, found, (temperature, top_k) in zip(prompts, tokens, logprobs, kinds, strict=True):
        processed = mode == "processed_logprobs" and temperature > 0
        wanted = true_logprobs(
            reference, prompt["prompt_token_ids"], output, temperature if processed else 1.0, top_k if processed else 0
        )
        torch.testing.assert_close(torch.tensor(found), wanted, atol=1e-4, rtol=0)


@pytest.mark.parametrize("mode", ["raw_logprobs", "processed_logprobs"])
def test_greedy_logprobs_are_the_unspeculated_engines(tiny, mode):
    prompts = prompts_of(6)
    params = greedy(100, logprobs=2)
    llm = engine(tiny, SAM, logprobs_mode=mode)
    tokens, logprobs = returned_logprobs(llm, prompts, params)
    drafted(llm)
    plain_tokens, plain_logprobs = returned_logprobs(engine(tiny, None, logprobs_mode=mode), prompts, params)
    assert tokens == plain_tokens
    torch.testing.assert_close(torch.tensor(logprobs), torch.tensor(plain_logprobs), atol=1e-5, rtol=0)


def test_the_second_epoch_is_drafted_from_the_first(tiny):
    llm = engine(tiny, SAM)
    rates = []
    for _ in range(2):
        before = model_runner(llm).drafter.stats()
        outputs = generate(llm, prompts_of(6), SamplingParams(temperature=0.1, max_tokens=80, ignore_eos=True))
        after = model_runner(llm).drafter.stats()
        rates.append((after["accepted_tokens"] - before["accepted_tokens"]) / sum(map(len, outputs)))
    assert rates[1] > rates[0] > 0


def test_a_batch_limit_turns_drafting_off_for_larger_batches(tiny, monkeypatch):
    monkeypatch.setenv(BATCH_LIMIT, "2")
    llm = engine(tiny, SAM)
    steps = record_drafts(llm)
    generate(llm, prompts_of(4), [greedy(40), greedy(40), greedy(80), greedy(80)])
    assert max(len(step) for step in steps) == 4
    assert max(len(step) for step in steps if any(size for _, _, size in step)) == 2


def test_a_refused_parameter_reaches_the_user(tiny):
    llm = engine(tiny, SAM)
    with pytest.raises(ValueError, match=r"min_tokens=5 cannot be served.*'sam'"):
        generate(llm, prompts_of(1), SamplingParams(min_tokens=5, max_tokens=10))
