"""vLLM's rejection sampler on a CPU: the same decisions as its Triton kernels, and right log-probs."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from scipy.stats import chisquare
from vllm.v1.sample.logits_processor import LogitsProcessors
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.ops.bad_words import apply_bad_words_with_drafts
from vllm.v1.sample.rejection_sampler import RejectionSampler, rejection_sample
from vllm.v1.sample.sampler import Sampler
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from patchset.project import find_project
from qwen3_rl.sam import rejection_torch

BONUS = 4
CASES = int(os.environ.get("SAM_TRITON_CASES", "5"))


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_torch_decides_as_triton_does(tmp_path):
    checkout = find_project(None).path("vllm")
    source = tmp_path / "rejection_sampler.py"
    show = ["git", "-C", checkout, "show", "patchset/base:vllm/v1/sample/rejection_sampler.py"]
    source.write_bytes(subprocess.run(show, check=True, capture_output=True).stdout)
    script = Path(__file__).with_name("against_triton.py")
    done = subprocess.run([sys.executable, script, source, str(CASES)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.splitlines()[-1]) == CASES * 12


def metadata(requests: int, **settings) -> SamplingMetadata:
    settings = {"temperature": torch.full((requests,), 0.5), "all_greedy": False, "all_random": True, **settings}
    defaults = {
        "top_p": None,
        "top_k": None,
        "generators": {},
        "no_penalties": True,
        "prompt_token_ids": None,
        **dict.fromkeys(("frequency_penalties", "presence_penalties", "repetition_penalties"), torch.tensor([])),
        "output_token_ids": [[] for _ in range(requests)],
        "allowed_token_ids_mask": None,
        "bad_words_token_ids": {},
        "logitsprocs": LogitsProcessors(),
        "max_num_logprobs": 0,
    }
    return SamplingMetadata(**{**defaults, **settings})


@pytest.mark.parametrize("with_draft_probs", [False, True])
def test_emitted_tokens_follow_the_target(with_draft_probs):
    torch.manual_seed(0)
    requests, target = 50_000, torch.tensor([[0.5, 0.25, 0.0, 0.2, 0.05], [0.1, 0.3, 0.3, 0.3, 0.0]])
    proposed = torch.tensor([[0.2, 0.3, 0.1, 0.2, 0.2], [0.3, 0.1, 0.2, 0.2, 0.2]])
    draft = torch.tensor([0, 1]).repeat(requests)
    if with_draft_probs:
        draft = proposed.multinomial(requests, replacement=True).T.flatten()
    emitted = rejection_sample(
        draft.int(),
        [2] * requests,
        2,
        torch.arange(2, 2 * requests + 1, 2),
        proposed.repeat(requests, 1) if with_draft_probs else None,
        target.repeat(requests, 1),
        torch.full((requests, 1), BONUS),
        metadata(requests),
    )
    for position in (0, 1):
        column = emitted[:, position]
        found = column[column >= 0].bincount(minlength=5)
        law = target[position].double()
        assert not found[law == 0].any()
        assert chisquare(found[law > 0], law[law > 0] / law.sum() * found.sum()).pvalue > 0.01, (found, law)
    right = (emitted[:, :2] == draft.view(-1, 2)).all(1)
    assert emitted[:, 2].tolist() == torch.where(right, BONUS, -1).tolist()


@pytest.mark.parametrize("with_draft_probs", [False, True])
def test_sampled_requests_beside_greedy_ones_and_such_without_drafts(with_draft_probs):
    """Each position has a law of its own, so that a token from another's row is noticed."""
    times, counts, temperature = 20_000, [2, 0, 3, 1, 2, 3], [1.0, 1.0, 0.0, 1.0, 0.0, 1.0]
    torch.manual_seed(1)
    laws = torch.rand(sum(counts), 5).pow(2).clamp(min=0.01)
    laws /= laws.sum(1, keepdim=True)
    proposed = torch.rand(laws.shape).softmax(1).repeat(times, 1) if with_draft_probs else None
    drafts = torch.arange(len(laws)).repeat(times) % 5 if proposed is None else proposed.multinomial(1)[:, 0]
    requests = times * len(counts)
    emitted = rejection_sample(
        drafts.int(),
        counts * times,
        max(counts),
        torch.tensor(counts * times).cumsum(0),
        proposed,
        laws.repeat(times, 1),
        torch.full((requests, 1), BONUS),
        metadata(requests, temperature=torch.tensor(temperature * times), all_random=False),
    ).view(times, len(counts), -1)
    position = 0
    for request, count in enumerate(counts):
        for column in emitted[:, request, :count].T:
            law, tokens = laws[position].double(), column[column >= 0]
            if temperature[request] == 0:
                assert (tokens == law.argmax()).all()
            else:
                found = tokens.bincount(minlength=5)
                assert chisquare(found, law / law.sum() * found.sum()).pvalue > 0.01 / 12, (request, found, law)
            position += 1


def test_a_seed_does_not_hear_the_other_requests():
    def sample(before: int, after: int, seed: int) -> list[int]:
        """The tokens of a seeded request with three drafts of chance 1/2, beside others with so many drafts."""
        counts = [before, 3, after]
        drafts = torch.arange(sum(counts)) % 3
        drafts[before : before + 3] = torch.arange(3)
        target = torch.full((len(drafts), 50), 0.5 / 49)
        target[torch.arange(len(drafts)), drafts] = 0.5
        settings = metadata(3, generators={1: torch.Generator().manual_seed(seed)})
        bonus = torch.full((3, 1), BONUS)
        sums = torch.tensor(counts).cumsum(0)
        return rejection_sample(drafts, counts, max(counts), sums, None, target, bonus, settings)[1, :4].tolist()

    alone = [sample(0, 0, seed) for seed in range(30)]
    assert len({tuple(tokens) for tokens in alone}) > 20
    assert [sample(2, 5, seed) for seed in range(30)] == alone


def test_the_rarest_uniform_numbers():
    target = torch.tensor([[0.0, 0.0, 0.3, 0.0, 0.7, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]])
    drafts, rows = torch.tensor([2, 1]), torch.tensor([0, 1])
    for uniform in (0.0, 1 - 2**-53):
        # Token 4 is all that is left beside the draft 2, and nothing beside the draft 1.
        found = rejection_torch._replacements(
            drafts, None, target, rows, torch.full((2,), uniform, dtype=torch.float64)
        )
        assert found.tolist() == [4, 1]


def test_raw_logprobs_stay_raw():
    check_logprobs("raw_logprobs", torch.float32)
    check_logprobs("raw_logprobs", torch.bfloat16)


def test_processed_logprobs_are_processed():
    check_logprobs("processed_logprobs", torch.float32)
    check_logprobs("processed_logprobs", torch.bfloat16)


def check_logprobs(mode: str, dtype: torch.dtype) -> None:
    # Requests with drafts of 2, 1 and 0 tokens; in the logits each one's draft positions, then its bonus.
    drafts = SpecDecodeMetadata.make_dummy([[1, 2], [3], []], torch.device("cpu"))
    drafts.target_logits_indices = torch.tensor([0, 1, 3])
    drafts.bonus_logits_indices = torch.tensor([2, 4, 5])
    logits = torch.randn(6, 8, generator=torch.Generator().manual_seed(0)) * 2
    logits[[0, 3], [1, 3]] += 9  # sure to be accepted
    logits[1, 2] -= 99  # sure to be refused
    logits = logits.to(dtype)
    expected = (logits.float() / (0.5 if mode == "processed_logprobs" else 1)).log_softmax(-1)
    sampled = RejectionSampler(Sampler(mode))(drafts, None, logits.clone(), metadata(3))
    emitted = sampled.sampled_token_ids
    assert (emitted >= 0).tolist() == [[True, True, False], [True, True, False], [True, False, False]]
    tokens = emitted[emitted >= 0].long()
    wanted = expected[[0, 1, 3, 4, 5]].gather(1, tokens[:, None])
    torch.testing.assert_close(sampled.logprobs_tensors.logprobs[:, :1], wanted)


def test_bad_words_hit_their_own_rows():
    logits = torch.zeros(3, 8)
    # Request 0 has a draft of two and no bad words, request 1 a draft of one and the bad words (5) and (4, 6).
    apply_bad_words_with_drafts(logits, {1: [[5], [4, 6]]}, [[1], [1, 2], [4]], [2, 1])
    assert logits.isneginf().nonzero().tolist() == [[2, 5], [2, 6]]


def test_allowed_tokens_without_penalties():
    drafts = SpecDecodeMetadata.make_dummy([[1, 2], [3]], torch.device("cpu"))
    # Request 1 may only write token 4.
    settings = metadata(
        2, allowed_token_ids_mask=torch.tensor([[False] * 5, [True] * 4 + [False]]), output_token_ids=[]
    )
    logits = RejectionSampler(Sampler()).apply_logits_processors(torch.zeros(3, 5), settings, drafts)
    assert logits.isneginf().nonzero().tolist() == [[2, 0], [2, 1], [2, 2], [2, 3]]
