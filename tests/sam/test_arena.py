import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3_rl.sam.arena import FREE_UNITS, NONE, UNIT_WORDS, alloc, new_arena, release


@settings(max_examples=60, deadline=None)
@given(
    st.integers(3000, 40000), st.lists(st.tuples(st.booleans(), st.integers(0, 8), st.integers(0, 99)), max_size=120)
)
def test_blocks_never_overlap_and_all_memory_comes_back(max_bytes, steps):
    mem, tags, heads = new_arena(max_bytes)
    assert mem.nbytes + tags.nbytes + heads.nbytes <= max_bytes
    free, start = int(heads[FREE_UNITS]), heads.copy()
    assert free == len(tags)
    held: dict[int, int] = {}
    owner = np.zeros(len(tags), dtype=bool)
    for take, order, pick in steps:
        if take:
            at = int(alloc(mem, tags, heads, order))
            if at == NONE:
                continue
            unit = at // UNIT_WORDS
            assert unit % (1 << order) == 0
            assert not owner[unit : unit + (1 << order)].any()
            owner[unit : unit + (1 << order)] = True
            held[at] = order
            mem[at : at + (UNIT_WORDS << order)] = 7
        elif held:
            at = sorted(held)[pick % len(held)]
            order = held.pop(at)
            owner[at // UNIT_WORDS : at // UNIT_WORDS + (1 << order)] = False
            release(mem, tags, heads, at)
        assert heads[FREE_UNITS] == free - owner.sum()
    for at in held:
        release(mem, tags, heads, at)
    assert heads[FREE_UNITS] == free
    # Joined again: the largest block is as large as at the start.
    assert (heads[:FREE_UNITS] != NONE).nonzero()[0].max() == (start[:FREE_UNITS] != NONE).nonzero()[0].max()
