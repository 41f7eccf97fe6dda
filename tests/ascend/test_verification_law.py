"""Speculative sampling on vllm-ascend's torch path emits tokens from the model's distribution, whatever k is."""

import pytest
import torch
from verification_law import chi_squares, emitted
from vllm_ascend.sample import rejection_sampler

BATCHES = 40  # 20,480 requests: block verification's chi-square is in the hundreds


def smallest_p(tokens: torch.Tensor) -> float:
    """The smallest p-value over the positions, corrected for their number (Bonferroni)."""
    return min(p for _, p in chi_squares(tokens)) * tokens.shape[1]


@pytest.mark.usefixtures("unpinned")
def test_emitted_tokens_follow_the_target():
    torch.manual_seed(0)
    laws = {
        (k, with_draft_probs): smallest_p(emitted(k, BATCHES, with_draft_probs))
        for k in (1, 3, 4)
        for with_draft_probs in (False, True)
    }
    assert {case: p for case, p in laws.items() if p < 0.01} == {}


@pytest.mark.usefixtures("unpinned")
@pytest.mark.parametrize("with_draft_probs", [False, True])
def test_the_check_catches_block_verification(monkeypatch, with_draft_probs):
    biased = rejection_sampler.rejection_random_sample_block_verify_pytorch
    monkeypatch.setattr(rejection_sampler, "rejection_random_sample_pytorch", biased)
    torch.manual_seed(0)
    assert smallest_p(emitted(3, BATCHES, with_draft_probs)) < 1e-9


class Kernel:
    """Takes a Triton kernel's place and counts its launches."""

    launches = 0

    def __getitem__(self, grid):
        return self

    def __call__(self, *args, **kwargs):
        self.launches += 1


@pytest.mark.usefixtures("unpinned")
def test_triton_verifies_token_by_token(monkeypatch):
    names = ("rejection_random_sample_kernel", "rejection_random_sample_block_verify_kernel")
    kernels = {name: Kernel() for name in names}
    stand_ins = {
        **kernels,
        "HAS_TRITON": True,
        "cal_grid_and_block_size": lambda size: (size, 1),
        "expand_triton": lambda *args, **kwargs: None,
        "sample_recovered_tokens": lambda *args: None,
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(rejection_sampler, name, stand_in)
    emitted(4, 1)
    assert [kernels[name].launches for name in names] == [1, 0]
