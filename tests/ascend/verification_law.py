"""The law of the tokens that vllm-ascend's rejection sampler emits, against the target's distribution.

    .venv-ascend/bin/python tests/ascend/verification_law.py [DEVICE]

prints docs/ascend.md's table for the vllm_ascend that Python imports; on the device `npu` Triton's kernels run.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import torch
from scipy.stats import chisquare
from vllm.v1.sample.logits_processor import LogitsProcessors
from vllm.v1.sample.metadata import SamplingMetadata
from vllm_ascend.sample.rejection_sampler import apply_sampling_constraints, rejection_sample

BATCH = 512  # vllm-ascend builds a mask of tokens x requests: larger batches are slower
TEMPERATURE = 0.8
# The target's law at each position, whatever came before it.
TARGETS = torch.tensor(
    [
        [0.50, 0.20, 0.12, 0.10, 0.05, 0.03],
        [0.30, 0.25, 0.20, 0.15, 0.07, 0.03],
        [0.05, 0.45, 0.05, 0.35, 0.05, 0.05],
        [0.20, 0.10, 0.40, 0.10, 0.10, 0.10],
        [0.10, 0.20, 0.10, 0.20, 0.10, 0.30],
    ]
)
DRAFTS = TARGETS * 0.5 + 0.5 / TARGETS.shape[1]  # what drafts with probabilities are drawn from


@contextmanager
def unpinned() -> Iterator[None]:
    """Pinned memory needs an accelerator's driver: the same tensors in ordinary memory."""

    def without_pinning(make):
        return lambda *args, pin_memory=False, **kwargs: make(*args, **kwargs)

    with ExitStack() as stack:
        for name in ("arange", "full", "ones", "tensor", "zeros"):
            stack.enter_context(mock.patch.object(torch, name, without_pinning(getattr(torch, name))))
        yield


def sampling_metadata(size: int) -> SamplingMetadata:
    """``size`` requests at TEMPERATURE, without seeds, penalties or top-p."""
    none = torch.zeros(size)
    return SamplingMetadata(
        temperature=torch.full((size,), TEMPERATURE),
        all_greedy=False,
        all_random=True,
        top_p=None,
        top_k=None,
        generators={},
        max_num_logprobs=None,
        no_penalties=True,
        prompt_token_ids=None,
        frequency_penalties=none,
        presence_penalties=none,
        repetition_penalties=none,
        output_token_ids=[[] for _ in range(size)],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=LogitsProcessors(),
    )


def emitted(k: int, batches: int, with_draft_probs: bool = False) -> torch.Tensor:
    """The tokens of ``batches`` x 512 requests with k drafts each: (requests, k + 1), -1 after the first rejection.

    Without probabilities the drafts are the target's most probable tokens.
    """
    metadata = sampling_metadata(BATCH)
    targets, draft_laws = (law.to(torch.get_default_device()) for law in (TARGETS, DRAFTS))
    positions = torch.arange(k).repeat(BATCH)
    ends = torch.arange(k, k * BATCH + 1, k)
    out = []
    for _ in range(batches):
        logits = apply_sampling_constraints(targets[positions].log() * TEMPERATURE, ends, metadata)
        probs = logits.softmax(dim=-1)
        bonus = torch.multinomial(targets[k].expand(BATCH, -1), 1)
        if with_draft_probs:
            draft_probs = draft_laws[positions]
            drafts = torch.multinomial(draft_probs, 1).view(-1)
        else:
            draft_probs = None
            drafts = targets[positions].argmax(dim=-1)
        out.append(rejection_sample(drafts, [k] * BATCH, k, ends, draft_probs, probs, bonus, metadata))
    return torch.cat(out)


def chi_squares(tokens: torch.Tensor) -> list[tuple[float, float]]:
    """For each position: chi-square of the tokens that were emitted there against the target's law, and its p-value."""
    found = []
    for position, law in enumerate(TARGETS[: tokens.shape[1]]):
        column = tokens[:, position].cpu()
        counts = torch.bincount(column[column >= 0], minlength=len(law)).double()
        result = chisquare(counts, law.double() / law.double().sum() * counts.sum())
        found.append((float(result.statistic), float(result.pvalue)))
    return found


def main() -> None:
    torch.set_default_device(sys.argv[1] if len(sys.argv) > 1 else "cpu")
    print("| k | drafts | chi-square at each position, 5 degrees of freedom | smallest p | tokens a step |")
    print("|---|---|---|---|---|")
    for k in (1, 2, 3, 4):
        for with_draft_probs in (False, True):
            torch.manual_seed(0)
            with unpinned():
                tokens = emitted(k, 400, with_draft_probs)
            found = chi_squares(tokens)
            drafts = "with probabilities" if with_draft_probs else "without"
            values = ", ".join(f"{value:.1f}" for value, _ in found)
            mean = (tokens >= 0).sum(1).double().mean()
            print(f"| {k} | {drafts} | {values} | {min(p for _, p in found):.2g} | {mean:.2f} |", flush=True)


if __name__ == "__main__":
    main()
