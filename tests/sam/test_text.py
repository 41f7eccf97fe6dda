from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3_rl.sam.arena import FREE_UNITS, NONE, new_arena
from qwen3_rl.sam.text import TEXT_START, TOKENS, append, close, common_suffix, place_after


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=150))
def test_index_leads_to_the_last_use_of_a_pair_or_nowhere(text):
    arena = new_arena(1 << 16)
    free = arena[2][FREE_UNITS]
    block = NONE
    found = 0
    for token in text:
        block = append(*arena, block, token)
    mem = arena[0]
    for pair in ((a, b) for a in range(4) for b in range(4)):
        places = [i for i in range(2, len(text)) if (text[i - 2], text[i - 1]) == pair]
        place = place_after(mem, block, *pair)
        assert place == NONE or place == places[-1]
        found += place != NONE
        for i in places:
            same = 0
            while same < min(10, i) and text[i - 1 - same] == text[-1 - same]:
                same += 1
            assert common_suffix(mem, block, i, 10) == same
    if len(set(text)) == 4 and len(text) > 100:
        assert found > 8  # later pairs may overwrite earlier ones, but not most of them
    block = close(*arena, block)
    assert mem[block + TEXT_START : block + TEXT_START + mem[block + TOKENS]].tolist() == text
    assert free - arena[2][FREE_UNITS] <= max(16, len(text))
