"""vLLM's verification of drafts in torch, for devices without Triton.

Two functions of vllm/v1/sample/rejection_sampler.py (0.13.0) with the same arguments and law.

Shapes: B requests, N draft tokens in all, V the vocabulary, S the longest draft. A draft is accepted up to its first
wrong token, which is replaced, and if all of it is right a bonus token follows (Leviathan et al. 2023, arXiv
2211.17192). The replacement is drawn by one uniform number and only where it is needed; vLLM draws V exponential ones
for every request, which on a CPU takes as long as the rest of sampling.
"""

from typing import Any

import torch

PLACEHOLDER_TOKEN_ID = -1  # what vLLM's parse_output leaves out


def expand_batch_to_tokens(
    x: torch.Tensor, cu_num_tokens: torch.Tensor, num_tokens: int, replace_from: int = 0, replace_to: int = 0
) -> torch.Tensor:
    """Each of x [B] once for each token of its request, `replace_from` as `replace_to`: [num_tokens].

    cu_num_tokens: int [B], the inclusive cumulative number of tokens.
    """
    counts = torch.diff(cu_num_tokens.long(), prepend=cu_num_tokens.new_zeros(1).long())
    return torch.where(x == replace_from, replace_to, x).repeat_interleave(counts, output_size=num_tokens)


def rejection_sample(
    draft_token_ids: torch.Tensor,
    num_draft_tokens: list[int],
    max_spec_len: int,
    cu_num_draft_tokens: torch.Tensor,
    draft_probs: torch.Tensor | None,
    target_probs: torch.Tensor,
    bonus_token_ids: torch.Tensor,
    sampling_metadata: Any,
) -> torch.Tensor:
    """The tokens of each request, int32 [B, S + 1], with PLACEHOLDER_TOKEN_ID behind them.

    draft_token_ids [N]; num_draft_tokens: B numbers; probs float32 [N, V], draft_probs None for drafts that have none;
    bonus_token_ids [B, 1]. Of sampling_metadata `all_greedy`, `all_random`, `temperature` [B] (0: greedy) and
    `generators` {request: generator} are read.
    """
    counts = torch.tensor(num_draft_tokens, device=target_probs.device)
    drafts = draft_token_ids.long()
    if sampling_metadata.all_greedy:
        greedy = torch.ones_like(drafts, dtype=torch.bool)
    else:
        greedy = (sampling_metadata.temperature == 0).repeat_interleave(counts)
    likeliest = drafts if sampling_metadata.all_random else target_probs.argmax(-1)  # read where greedy
    chance = target_probs.gather(1, drafts[:, None])[:, 0]
    if draft_probs is not None:
        proposed = draft_probs.gather(1, drafts[:, None])[:, 0]
        chance = torch.where(proposed > 0, chance / proposed, 0.0)
    uniform, uniform_for_last = _uniform(num_draft_tokens, sampling_metadata.generators, target_probs.device)
    right = torch.where(greedy, drafts == likeliest, chance > uniform)

    inside = torch.arange(max_spec_len, device=counts.device) < counts[:, None]
    kept = torch.zeros_like(inside).masked_scatter_(inside, right).long().cumprod(1)
    output = torch.full((len(counts), max_spec_len + 1), PLACEHOLDER_TOKEN_ID, dtype=torch.int32, device=counts.device)
    output[:, :-1].masked_scatter_(inside, drafts.int()).masked_fill_(kept == 0, PLACEHOLDER_TOKEN_ID)

    accepted = kept.sum(1)
    refused = accepted < counts
    wrong = (counts.cumsum(0) - counts + accepted)[refused]  # of the N
    instead = likeliest[wrong]
    sampled = ~greedy[wrong]
    at = wrong[sampled]
    instead[sampled] = _replacements(drafts[at], draft_probs, target_probs, at, uniform_for_last[refused][sampled])
    last = bonus_token_ids.view(-1).to(torch.int32, copy=True)
    last[refused] = instead.int()
    return output.scatter_(1, accepted[:, None], last[:, None])


def _uniform(
    num_draft_tokens: list[int], generators: dict[int, torch.Generator], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Uniform numbers from 0 to below 1, float64, for each draft token [N] and each request [B].

    A request with a generator takes its own from that, unless it has no drafts: other requests must not matter.
    """
    # In float32, 0 would be too frequent.
    of_tokens = torch.rand(sum(num_draft_tokens), dtype=torch.float64, device=device)
    of_requests = torch.rand(len(num_draft_tokens), dtype=torch.float64, device=device)
    of_their_tokens = of_tokens.split(num_draft_tokens)
    for request, generator in generators.items():
        if num_draft_tokens[request]:
            of_their_tokens[request].uniform_(generator=generator)
            of_requests[request].uniform_(generator=generator)
    return of_tokens, of_requests


def _replacements(
    drafts: torch.Tensor,
    draft_probs: torch.Tensor | None,
    target_probs: torch.Tensor,
    rows: torch.Tensor,
    uniform: torch.Tensor,
) -> torch.Tensor:
    """Samples of max(target - draft, 0), one for each refused token: drafts, rows (of the probs) and uniform [R]."""
    rest = target_probs[rows]
    if draft_probs is None:
        rest.scatter_(1, drafts[:, None], 0.0)
    else:
        rest.sub_(draft_probs[rows]).clamp_(min=0)
    sums = rest.cumsum(1, dtype=torch.float64)
    total = sums[:, -1:]
    found = torch.searchsorted(sums, uniform[:, None] * total, right=True)
    # Nothing is left where the draft had all the probability, but for rounding.
    return torch.where(total > 0, found, drafts[:, None])[:, 0]
