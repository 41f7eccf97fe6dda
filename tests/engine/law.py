"""Is the law of sampled outputs the model's? Exact probabilities from transformers, and a chi-square test."""

from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import torch
from scipy.stats import chi2

LENGTH = 4  # tokens of an output


def exact_law(model: Path, prompt: list[int], allowed: list[int], temperature: float) -> dict[tuple[int, ...], float]:
    """The probability of every output of 1 to LENGTH tokens that uses the allowed ones only."""
    from transformers import Qwen3ForCausalLM

    reference = Qwen3ForCausalLM.from_pretrained(model, dtype=torch.float32)
    law = {(): 1.0}
    for length in range(LENGTH):
        prefixes = list(product(allowed, repeat=length))
        with torch.no_grad():
            logits = reference(torch.tensor([[*prompt, *prefix] for prefix in prefixes])).logits[:, -1, allowed]
        for prefix, row in zip(prefixes, (logits.double() / temperature).softmax(-1).tolist(), strict=True):
            for token, probability in zip(allowed, row, strict=True):
                law[(*prefix, token)] = law[prefix] * probability
    return law


def p_values(law: dict[tuple[int, ...], float], outputs: list[list[int]]) -> list[float]:
    """For each length from 1 to LENGTH: how likely so large a deviation of the outputs' beginnings from the law is.

    Cells with fewer than 5 expected outputs are counted as one.
    """
    found = []
    for length in range(1, LENGTH + 1):
        counted = Counter(tuple(output[:length]) for output in outputs)
        cells = [prefix for prefix in law if len(prefix) == length]
        assert set(counted) <= set(cells)
        expected = np.array([law[prefix] * len(outputs) for prefix in cells])
        observed = np.array([counted[prefix] for prefix in cells], dtype=float)
        large = expected >= 5
        expected = np.append(expected[large], expected[~large].sum())
        observed = np.append(observed[large], observed[~large].sum())
        expected, observed = expected[expected > 0], observed[expected > 0]
        statistic = ((observed - expected) ** 2 / expected).sum()
        found.append(float(chi2.sf(statistic, len(expected) - 1)))
    return found


def worst(p: list[float]) -> float:
    """The smallest p after Bonferroni's correction."""
    return min(1.0, min(p) * len(p))
