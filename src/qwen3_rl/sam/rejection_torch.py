"""The four Triton kernels of vLLM's rejection sampler as vectorised torch functions, for devices without Triton.

Arguments as in vllm/v1/sample/rejection_sampler.py (0.13.0), and called the same way, `kernel[grid](...)`: each writes
its first argument in place. Shapes: B requests, N draft tokens in all, V the vocabulary, S the longest draft; `cu` int
[B] is the inclusive cumulative number of draft tokens. A draft is accepted up to its first wrong token, which is
replaced, and if all of it is right a bonus token follows (Leviathan et al. 2023, arXiv 2211.17192).
"""

from collections.abc import Callable

import torch


class _Kernel:
    """A function called like a Triton kernel; the grid says nothing to it."""

    def __init__(self, function: Callable[..., None]):
        self._function = function

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return self._function


def _counts(cu: torch.Tensor) -> torch.Tensor:
    """Draft tokens of each request, int64 [B]."""
    return torch.diff(cu.long(), prepend=cu.new_zeros(1).long())


def _fill(
    output: torch.Tensor,
    cu: torch.Tensor,
    right: torch.Tensor,
    tokens: torch.Tensor,
    bonus: torch.Tensor,
    rows: torch.Tensor | None,
) -> None:
    """Write each request's tokens up to its first wrong one, or all and the bonus.

    output [B, S + 1]; right bool [N]; tokens [N]: what each position emits; bonus [B, 1]; rows bool [B]: the requests
    that are written (None: all).
    """
    counts = _counts(cu)
    columns = torch.arange(output.shape[1], device=output.device)
    inside = columns < counts[:, None]
    spread_right = torch.ones_like(inside)
    spread_right[inside] = right
    spread_tokens = output.clone()
    spread_tokens[inside] = tokens.to(output.dtype)
    at_bonus = columns == counts[:, None]
    spread_tokens = torch.where(at_bonus, bonus.view(-1, 1).to(output.dtype), spread_tokens)
    # Every position before this one was right.
    reached = spread_right.cumprod(1).roll(1, 1).bool()
    reached[:, 0] = True
    written = reached & (inside | at_bonus)
    if rows is not None:
        written &= rows[:, None]
    output[written] = spread_tokens[written]


@_Kernel
def rejection_greedy_sample(output, cu, draft, target_argmax, bonus, is_greedy, max_spec_len) -> None:
    """output int32 [B, S + 1]; draft, target_argmax [N]; bonus [B, 1]; is_greedy bool [B] or None, which means all."""
    _fill(output, cu, draft == target_argmax, target_argmax, bonus, is_greedy)


@_Kernel
def rejection_random_sample(
    output, cu, draft, draft_probs, target_probs, bonus, recovered, uniform, is_greedy, max_spec_len, vocab_size,
    NO_DRAFT_PROBS,
) -> None:  # fmt: skip
    """output int32 [B, S + 1]; draft, recovered, uniform [N]; probs [N, V], draft_probs perhaps None."""
    chosen = draft.long()[:, None]
    target = target_probs.gather(1, chosen)[:, 0]
    if NO_DRAFT_PROBS:
        accepted = target >= uniform
    else:
        proposed = draft_probs.gather(1, chosen)[:, 0]
        accepted = (proposed > 0) & (target / proposed >= uniform)
    _fill(output, cu, accepted, torch.where(accepted, draft, recovered), bonus, ~is_greedy)


@_Kernel
def expand(output, values, cu, replace_from, replace_to, MAX_NUM_TOKENS) -> None:
    """output [N]: each of values [B] once for each draft token of its request, replace_from as replace_to."""
    replaced = torch.where(values == replace_from, torch.full_like(values, replace_to), values)
    output.copy_(replaced.repeat_interleave(_counts(cu), output_size=len(output)))


@_Kernel
def sample_recovered_tokens(
    output, cu, draft, draft_probs, target_probs, q, vocab_size, PADDED_VOCAB_SIZE, NO_DRAFT_PROBS
) -> None:
    """output [N]: for each position the token to take if its draft is refused, argmax of max(target - draft, 0) / q.

    q float32 [B, V]: exponential noise, one row a request, which makes the argmax a sample.
    """
    if NO_DRAFT_PROBS:
        rest = target_probs.scatter(1, draft.long()[:, None], 0.0)
    else:
        rest = (target_probs - draft_probs).clamp_(min=0)
    requests = torch.arange(len(q), device=q.device).repeat_interleave(_counts(cu), output_size=len(output))
    output.copy_(rest.div_(q[requests]).argmax(-1))
