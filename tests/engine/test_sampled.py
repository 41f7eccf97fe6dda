"""Sampled outputs follow the model's law exactly, with drafts accepted and refused; a biased sampler is noticed.

SAM_FULL=1: 20,000 samples a case.
"""

import os

import pytest
import torch
from engine_lab import drafted, engine, generate, sam
from law import LENGTH, exact_law, p_values, worst
from vllm import SamplingParams
from vllm.v1.sample import rejection_sampler

SAMPLES = 20_000 if os.environ.get("SAM_FULL") else 3_000
ALLOWED = [65, 66, 67]
# Every pair of allowed tokens occurs, so there is a draft after any text.
PROMPT = [7, 65, 66, 67, 65, 67, 66, 65, 65, 66, 66, 67, 67, 65]
TEMPERATURE = 0.15


@pytest.fixture(scope="module")
def law(tiny):
    return exact_law(tiny, PROMPT, ALLOWED, TEMPERATURE)


def sample(tiny, sharing: str) -> list[list[int]]:
    llm = engine(tiny, sam(sharing=sharing), max_num_seqs=256, max_num_batched_tokens=8192)
    params = SamplingParams(
        # Longer than what is compared: a draft never reaches beyond max_tokens.
        temperature=TEMPERATURE,
        allowed_token_ids=ALLOWED,
        max_tokens=LENGTH + 2,
        ignore_eos=True,
        detokenize=False,
    )
    outputs = generate(llm, [{"prompt_token_ids": PROMPT}] * SAMPLES, params)
    stats = drafted(llm)
    assert stats["accepted_tokens"] < stats["draft_tokens"], "none was refused"
    assert (stats["group_hits"] > 0) == (sharing == "group")
    return outputs


@pytest.mark.parametrize("sharing", ["self", "group"])
def test_samples_follow_the_law(tiny, law, sharing):
    assert worst(p_values(law, sample(tiny, sharing))) > 0.01


def test_a_biased_sampler_is_noticed(tiny, law, monkeypatch):
    """Block verification with one-hot drafts, as in vllm-ascend 0.13.0: accept by the product of the probabilities."""

    def block_verification(draft, counts, longest, cu, draft_probs, target, bonus, metadata):
        output = torch.full((len(counts), longest + 1), -1, dtype=torch.int32)
        for row, (end, count) in enumerate(zip(cu.tolist(), counts, strict=True)):
            mine, probs = draft[end - count : end].long(), target[end - count : end]
            chances = probs[torch.arange(count), mine].cumprod(0)
            legal = (chances >= torch.rand(count).cumprod(0)).nonzero()
            accepted = int(legal[-1]) + 1 if len(legal) else 0
            output[row, :accepted] = mine[:accepted]
            if accepted == count:
                output[row, count] = bonus[row, 0]
            else:
                probs[accepted, mine[accepted]] = 0.0
                output[row, accepted] = probs[accepted].multinomial(1)
        return output

    monkeypatch.setattr(rejection_sampler, "rejection_sample", block_verification)
    assert worst(p_values(law, sample(tiny, "group"))) < 1e-6
