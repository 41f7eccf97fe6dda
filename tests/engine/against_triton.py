"""Runs vLLM's own Triton kernels (of the checkout's base, in Triton's interpreter) beside their torch replacements.

All must agree but the sampled replacements of refused drafts, which are drawn in another way. A process of its own:
TRITON_INTERPRET must be set before Triton is imported. Prints how many calls agreed.
"""

import importlib.util
import itertools
import os
import sys
from types import SimpleNamespace

os.environ["TRITON_INTERPRET"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # vLLM then takes Triton without a device

import torch

VOCABULARY = 11
REPLACED = -2


def pristine(path: str):
    spec = importlib.util.spec_from_file_location("pristine_rejection_sampler", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def case(seed: int, greedy: str, with_draft_probs: bool):
    """Arguments of rejection_sample: 1 to 6 requests with 0 to 5 draft tokens, some of them sure to be accepted."""
    generator = torch.Generator().manual_seed(seed)
    batch = int(torch.randint(1, 7, (), generator=generator))
    counts = torch.randint(0, 6, (batch,), generator=generator)
    counts[0] = max(int(counts[0]), 1)
    total = int(counts.sum())
    target = (torch.randn(total, VOCABULARY, generator=generator) * 3).softmax(-1)
    draft = torch.where(
        torch.rand(total, generator=generator) < 0.6,
        target.argmax(-1),
        torch.randint(0, VOCABULARY, (total,), generator=generator),
    ).int()
    draft_probs = torch.randn(total, VOCABULARY, generator=generator).softmax(-1) if with_draft_probs else None
    bonus = torch.randint(0, VOCABULARY, (batch, 1), generator=generator).int()
    temperature = {
        "none": torch.ones(batch),
        "all": torch.zeros(batch),
        "some": torch.randint(0, 2, (batch,), generator=generator).float(),
    }[greedy]
    metadata = SimpleNamespace(
        all_greedy=greedy == "all", all_random=greedy == "none", temperature=temperature, generators={}
    )
    cumulative = counts.cumsum(0).int()
    return (draft, counts.tolist(), int(counts.max()), cumulative, draft_probs, target, bonus, metadata), cumulative


def sampled_replacements(arguments, emitted: torch.Tensor) -> torch.Tensor:
    """Where the random requests emit something else than their draft or its bonus: bool, as emitted."""
    counts, metadata = arguments[1], arguments[-1]
    last = (emitted >= 0).sum(1) - 1
    refused = (last < torch.tensor(counts)) & (metadata.temperature > 0)
    return torch.nn.functional.one_hot(last, emitted.shape[1]).bool() & refused[:, None]


def main() -> int:
    from vllm.v1.sample import rejection_sampler as patched

    reference = pristine(sys.argv[1])
    assert patched.rejection_sample.__module__ == "qwen3_rl.sam.rejection_torch"
    assert "triton" in type(reference.expand_kernel).__module__
    agreed = 0
    for seed, greedy, with_probs in itertools.product(range(int(sys.argv[2])), ("none", "all", "some"), (False, True)):
        arguments, cumulative = case(seed, greedy, with_probs)
        results = []
        for module in (reference, patched):
            torch.manual_seed(seed)
            emitted = module.rejection_sample(*arguments)
            emitted[sampled_replacements(arguments, emitted)] = REPLACED
            values = arguments[-1].temperature
            results.append((emitted, module.expand_batch_to_tokens(values, cumulative, len(arguments[0]), 0, 1)))
        for wanted, found in zip(*results, strict=True):
            assert torch.equal(wanted, found), (seed, greedy, with_probs, wanted, found)
            agreed += 1
    print(agreed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
