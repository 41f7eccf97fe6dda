"""Greedy outputs with SAM equal those without, whatever else the engine does meanwhile; drafts were accepted each time.

SAM_FULL=1: the full size, 64 prompts of 400 tokens.
"""

import os
import re

import pytest
from engine_lab import SAM, cumulative, drafted, engine, generate, greedy, model_runner, prompts_of, sam
from vllm import SamplingParams
from vllm.sampling_params import StructuredOutputsParams

PROMPTS, TOKENS = (64, 400) if os.environ.get("SAM_FULL") else (12, 150)


def both(tiny, prompts, params, **settings):
    """(outputs with SAM, outputs without, the engine with SAM)."""
    llm = engine(tiny, settings.pop("speculation", SAM), **settings)
    found = generate(llm, prompts, params)
    drafted(llm)
    return found, generate(engine(tiny, None, **settings), prompts, params), llm


def steps_of(llm) -> list[int]:
    """The batch sizes of the steps to come."""
    runner, sizes = model_runner(llm), []
    execute = runner.execute_model

    def counting(scheduled, *more):
        sizes.append(len(scheduled.num_scheduled_tokens))
        return execute(scheduled, *more)

    runner.execute_model = counting
    return sizes


@pytest.mark.parametrize("sharing", ["group", "self"])
def test_plain(tiny, sharing):
    # Each prompt twice: siblings.
    prompts = prompts_of(PROMPTS // 2) * 2
    found, wanted, llm = both(tiny, prompts, greedy(TOKENS), speculation=sam(sharing=sharing))
    assert found == wanted
    assert (drafted(llm)["group_hits"] > 0) == (sharing == "group")


def test_preemption(tiny):
    # 12 blocks of 32 tokens: room for three of the requests at their full length.
    settings = {"num_gpu_blocks_override": 13, "block_size": 32, "max_model_len": 128, "enable_prefix_caching": False}
    prompts, params = prompts_of(8), greedy(100)
    llm = engine(tiny, SAM, **settings)
    found = generate(llm, prompts, params)
    assert preemptions(llm) > 0
    drafted(llm)
    assert found == generate(engine(tiny, None, **settings), prompts, params)


def preemptions(llm) -> int:
    (metric,) = (metric for metric in llm.get_metrics() if metric.name == "vllm:num_preemptions")
    return metric.value


def test_chunked_prefill_and_mixed_batches(tiny):
    # At most 48 tokens a step: prompts of 200 are computed in pieces beside requests that decode, drafts among them.
    settings = {"max_num_batched_tokens": 48, "max_num_seqs": 4, "enable_prefix_caching": False}
    prompts = [prompt for i in range(6) for prompt in (*prompts_of(1, 20, i), *prompts_of(1, 200, i))]
    found, wanted, _ = both(tiny, prompts, greedy(60), **settings)
    assert found == wanted


def test_prefix_caching(tiny):
    (head,) = prompts_of(1, 128)
    prompts = [{"prompt_token_ids": head["prompt_token_ids"] + tail["prompt_token_ids"]} for tail in prompts_of(6)]
    llm = engine(tiny, SAM, block_size=32)
    generate(llm, prompts[:1], greedy(1))
    outputs = llm.generate(prompts, greedy(60), use_tqdm=False)
    assert [output.num_cached_tokens for output in outputs] == [128] * 6
    drafted(llm)
    found = [list(output.outputs[0].token_ids) for output in outputs]
    assert found == generate(engine(tiny, None, block_size=32, enable_prefix_caching=False), prompts, greedy(60))


def test_greedy_beside_sampled_requests(tiny):
    prompts = prompts_of(12)
    sampled = SamplingParams(temperature=0.7, top_p=0.9, max_tokens=80, ignore_eos=True)
    penalised = SamplingParams(temperature=0, repetition_penalty=1.3, max_tokens=80, ignore_eos=True)
    params = [greedy(80), sampled, penalised, greedy(50)] * 3
    found, wanted, _ = both(tiny, prompts, params)
    deterministic = [i for i, one in enumerate(params) if one.temperature == 0]
    assert [found[i] for i in deterministic] == [wanted[i] for i in deterministic]


def test_aborted_requests_leave_the_others_alone(tiny):
    llm = engine(tiny, SAM)
    for i, prompt in enumerate(prompts_of(6)):
        llm.llm_engine.add_request(f"r{i}", prompt, cumulative(greedy(80)))
    done = {}
    for step in range(200):
        if step == 20:
            llm.llm_engine.abort_request(["r1", "r4"])
        done.update({o.request_id: list(o.outputs[0].token_ids) for o in llm.llm_engine.step() if o.finished})
        if not llm.llm_engine.has_unfinished_requests():
            break
    drafted(llm)
    assert sorted(done) == ["r0", "r2", "r3", "r5"]
    # The proposer hears of the last ends with the next batch.
    more = generate(llm, prompts_of(1, first=9), greedy(5))
    assert len(model_runner(llm).drafter._running) == 1
    wanted = generate(engine(tiny, None), prompts_of(6) + prompts_of(1, first=9), [greedy(80)] * 6 + [greedy(5)])
    assert [done[f"r{i}"] for i in (0, 2, 3, 5)] + more == [wanted[i] for i in (0, 2, 3, 5, 6)]


def test_structured_output(tiny):
    check_structured_output(tiny, mixed=True)


def test_structured_output_alone(tiny):
    check_structured_output(tiny, mixed=False)


def check_structured_output(tiny, mixed: bool) -> None:
    params = greedy(60, structured_outputs=StructuredOutputsParams(regex="(a|b[cd]){20,40}"))
    params.ignore_eos = False
    found, wanted, llm = both(tiny, prompts_of(4), [params, greedy(60) if mixed else params] * 2)
    assert found == wanted
    texts = llm.get_tokenizer().batch_decode(found[::2], skip_special_tokens=True)
    assert all(re.fullmatch("(a|b[cd])+b?", text) for text in texts), texts


def test_near_the_model_length(tiny):
    prompts = [*prompts_of(3, tokens=60), *prompts_of(3, tokens=20, first=3)]
    found, wanted, _ = both(tiny, prompts, greedy(500), max_model_len=128)
    assert found == wanted
    assert [len(tokens) for tokens in found] == [68] * 3 + [108] * 3


def test_stop_in_the_middle_of_accepted_drafts(tiny):
    prompts = prompts_of(6)
    free = generate(engine(tiny, None), prompts, greedy(120))
    stops = [tokens[100] for tokens in free]
    params = [greedy(120, stop_token_ids=[stop]) for stop in stops]
    found, wanted, _ = both(tiny, prompts, params)
    assert found == wanted
    assert all(tokens[-1] == stop for tokens, stop in zip(found, stops, strict=True))
