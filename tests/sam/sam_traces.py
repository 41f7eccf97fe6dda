"""Made-up rollouts: siblings are edited copies of one text, as samples of one prompt are."""

import numpy as np


def sibling_traces(groups=3, siblings=4, epochs=2, length=120, vocabulary=50, edits=0.1, seed=0) -> dict:
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(groups):
        base = rng.zipf(1.3, size=length) % vocabulary
        base[length // 2 :] = base[: length - length // 2]  # texts repeat themselves
        made = []
        for _ in range(epochs):
            made.append([])
            for _ in range(siblings):
                edited = np.where(rng.random(length) < edits, rng.integers(0, vocabulary, length), base)
                made[-1].append(edited[: rng.integers(length // 2, length)].tolist())
        out.append({"prompt": rng.integers(0, vocabulary, 12).tolist(), "epochs": made})
    return {"groups": out}
