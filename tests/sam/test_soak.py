"""10,000 requests over 1,000 groups with random aborts under 64 MB: the bound holds, nothing leaks, drafts are real."""

import numpy as np

from qwen3_rl.sam import SamDrafter

MAX_BYTES = 64_000_000


def test_soak():
    rng = np.random.default_rng(0)
    drafter = SamDrafter(5, MAX_BYTES)
    start = drafter.stats()["bytes_used"]
    prompts = [rng.integers(1, 60_000, 20).tolist() for _ in range(1000)]
    bases = [rng.integers(1, 60_000, 400).tolist() for _ in range(1000)]
    said = ["\0" + "".join(map(chr, prompt)) for prompt in prompts]  # all text of each group; tokens as characters
    jobs = [int(group) for _ in range(10) for group in rng.permutation(1000)]
    running: dict[int, list] = {}  # req -> [group, response, tokens fed, abort at]
    done = drafts_seen = tokens_fed = most = 0
    while jobs or running:
        while jobs and len(running) < 96:
            group = jobs.pop()
            base = bases[group]
            edits = rng.random(len(base)) < 0.05
            response = [int(rng.integers(1, 60_000)) if e else t for e, t in zip(edits, base, strict=True)]
            response = response[: int(rng.integers(20, len(base)))]
            cut = len(response) if rng.random() < 0.8 else int(rng.integers(0, len(response)))
            drafter.add_request(done, prompts[group])
            running[done] = [group, response, 0, cut]
            done += 1
        reqs = list(running)
        new = [r[1][r[2] : r[2] + int(rng.integers(1, 9))] for r in running.values()]
        drafts = drafter.propose_lists(reqs, new)
        for req, tokens in zip(reqs, new, strict=True):
            group, response, at, _ = running[req]
            # A sibling's text goes in as one stretch, so what precedes the new tokens is repeated before them.
            said[group] += "\0" + "".join(map(chr, (prompts[group] + response[:at])[-8:] + tokens))
            running[req][2] += len(tokens)
            tokens_fed += len(tokens)
        for req, draft in zip(reqs, drafts, strict=True):
            group, response, at, cut = running[req]
            if draft:
                drafts_seen += 1
                assert "".join(map(chr, [response[at - 1], *draft])) in said[group]
            if at >= cut or at >= len(response):
                drafter.finish(req)
                del running[req]
        used = drafter.stats()["bytes_used"]
        most = max(most, used)
        assert used <= MAX_BYTES
    stats = drafter.stats()
    assert done == 10_000
    assert stats["bytes_reserved"] <= MAX_BYTES
    assert most > MAX_BYTES * 0.8, "the bound was never near"
    assert drafts_seen > 10_000
    assert stats["requests"] == 0
    assert stats["groups"] <= 1000
    for group in list(drafter._idle.values()):
        drafter._forget(group)
    assert drafter.stats()["bytes_used"] == start
