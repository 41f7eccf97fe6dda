"""An online suffix automaton over token ids, shared by many sequences, with exact counts and ends for short strings.

States are equivalence classes of strings that end at the same positions (Blumer et al., "The smallest automaton
recognizing the subwords of a text", 1985); several sequences grow it in turn (the automaton of a trie of texts). Every
state also holds how often, when first and when last its strings occurred. Those change for all suffixes of a text at
every token, so only suffixes of at most `count_depth` tokens are kept exact: one bounded walk over suffix links.

A state is 12 words in the arena, named by its first word's index. Its edges: A, the most frequent continuation (latest
on ties), B, the latest of the others, and, from the third edge on, a table of all of them: 2**j (token, state) pairs
of which pair 0 is a header (HEADER + order, number of edges), scanned up to 8 pairs, open-addressed beyond.
"""

import numpy as np

from qwen3_rl.sam._jit import jit
from qwen3_rl.sam.arena import NONE, alloc, release

# State words.
LEN, LINK, COUNT, LAST, FIRST, OWNER, A_TOKEN, A_STATE, B_TOKEN, B_STATE, TABLE = range(11)
STATE_WORDS = 12
HEADER = 1 << 31  # above every token id, so that a probe for a token passes it by
PAGE_ORDER = 7
PAGE_WORDS = 4 << PAGE_ORDER  # word 0 names the next page, states start at word 4
# Group words: root state, newest page, end of its used words, clock (tokens fed), sequences begun, then where a
# sequence that begins (after the prompt) stands, the newest text block and the number of tokens in text blocks.
ROOT, PAGE, PAGE_USED, CLOCK, SEQUENCES, START, START_MATCH, START_LENGTH, TEXT, TEXT_TOKENS = range(10)
GROUP_WORDS = 10
# Sequence words: its group's row, its own state, the state and length of the counted suffix, its number in the group,
# its text block; what its last draft left for the model to learn from follows (kernels.py).
GROUP, STATE, MATCH, MATCH_LENGTH, NUMBER, BLOCK = range(6)
SEQUENCE_WORDS = 6


@jit
def _slot(mem, table, token):
    """Index of `token`'s pair in a table, or NONE."""
    order = mem[table] & 63
    size = 2 << order
    if size <= 8:
        for i in range(1, np.int64(mem[table + 1]) + 1):
            if mem[table + 2 * i] == token:
                return table + 2 * i
        return NONE
    i = ((token * 0x9E3779B1) & 0xFFFFFFFF) >> (31 - order)
    while True:
        held = mem[table + 2 * i]
        if held == token:
            return table + 2 * i
        if held == NONE:
            return NONE
        i = (i + 1) & (size - 1)


@jit
def _put(mem, table, token, target):
    """Insert a token that the table lacks; the caller saw to the room."""
    order = mem[table] & 63
    size = 2 << order
    mem[table + 1] += 1
    if size <= 8:
        i = mem[table + 1]
    else:
        i = ((token * 0x9E3779B1) & 0xFFFFFFFF) >> (31 - order)
        while mem[table + 2 * i] != NONE:
            i = (i + 1) & (size - 1)
    mem[table + 2 * i] = token
    mem[table + 2 * i + 1] = target


@jit
def _new_table(mem, tags, heads, order):
    table = alloc(mem, tags, heads, order)
    if table != NONE:
        for i in range(table + 2, table + (4 << order), 2):
            mem[i] = NONE
        mem[table] = HEADER | order
        mem[table + 1] = 0
    return table


@jit
def _look_up(mem, table, token):
    at = _slot(mem, table, token)
    return mem[at + 1] if at != NONE else NONE


@jit(inline="always")
def step(mem, state, token):
    """The state reached from `state` by `token`, or NONE."""
    found = NONE
    if mem[state + A_TOKEN] == token:
        found = mem[state + A_STATE]
    elif mem[state + B_TOKEN] == token:
        found = mem[state + B_STATE]
    elif mem[state + TABLE] != NONE:
        found = _look_up(mem, mem[state + TABLE], token)
    return found


@jit
def _redirect(mem, state, token, target):
    if mem[state + A_TOKEN] == token:
        mem[state + A_STATE] = target
    elif mem[state + B_TOKEN] == token:
        mem[state + B_STATE] = target
    if mem[state + TABLE] != NONE:
        mem[_slot(mem, mem[state + TABLE], token) + 1] = target


@jit
def _add_to_table(mem, tags, heads, state, token, target):
    table = mem[state + TABLE]
    if table == NONE:
        table = _new_table(mem, tags, heads, 1)
        if table == NONE:
            return False
        _put(mem, table, mem[state + A_TOKEN], mem[state + A_STATE])
        _put(mem, table, mem[state + B_TOKEN], mem[state + B_STATE])
    else:
        order = mem[table] & 63
        size = 2 << order
        if mem[table + 1] >= (size - 1 if size <= 8 else size * 3 // 4):
            bigger = _new_table(mem, tags, heads, order + 1)
            if bigger == NONE:
                return False
            for i in range(table + 2, table + 2 * size, 2):
                if mem[i] != NONE:
                    _put(mem, bigger, mem[i], mem[i + 1])
            release(mem, tags, heads, table)
            table = bigger
    mem[state + TABLE] = table
    _put(mem, table, token, target)
    return True


@jit(inline="always")
def _add_edge(mem, tags, heads, state, token, target):
    """Add an edge that `state` lacks; False when the arena has no room."""
    fits = True
    if mem[state + A_TOKEN] == NONE:
        mem[state + A_TOKEN] = token
        mem[state + A_STATE] = target
    elif mem[state + B_TOKEN] == NONE:
        mem[state + B_TOKEN] = token
        mem[state + B_STATE] = target
    else:
        fits = _add_to_table(mem, tags, heads, state, token, target)
    return fits


@jit
def _new_state(mem, tags, heads, group):
    """A state with undefined words, or NONE."""
    if group[PAGE_USED] + STATE_WORDS > PAGE_WORDS:
        page = alloc(mem, tags, heads, PAGE_ORDER)
        if page == NONE:
            return NONE
        mem[page] = group[PAGE]
        group[PAGE] = page
        group[PAGE_USED] = 4
    state = np.int64(group[PAGE]) + np.int64(group[PAGE_USED])
    group[PAGE_USED] += STATE_WORDS
    return state


@jit
def _clone(mem, tags, heads, group, parent, token, state):
    """Split the strings of `state` of at most len(parent) + 1 tokens off into a new state; NONE when out of room."""
    new = _new_state(mem, tags, heads, group)
    if new == NONE:
        return NONE
    for i in range(STATE_WORDS):
        mem[new + i] = mem[state + i]
    mem[new + LEN] = mem[parent + LEN] + 1
    old = mem[state + TABLE]
    if old != NONE:
        order = mem[old] & 63
        table = alloc(mem, tags, heads, order)
        mem[new + TABLE] = table
        if table == NONE:
            return NONE
        for i in range(4 << order):
            mem[table + i] = mem[old + i]
    mem[state + LINK] = new
    while parent != NONE and step(mem, parent, token) == state:
        _redirect(mem, parent, token, new)
        parent = mem[parent + LINK]
    return new


@jit
def open_group(mem, tags, heads, group):
    """Give `group` (uint32 [GROUP_WORDS]) an empty automaton; its text words stay. False when out of room."""
    group[PAGE] = NONE
    group[PAGE_USED] = PAGE_WORDS
    group[CLOCK] = 0
    group[SEQUENCES] = 0
    root = _new_state(mem, tags, heads, group)
    group[ROOT] = root
    group[START] = root
    group[START_MATCH] = root
    group[START_LENGTH] = 0
    if root == NONE:
        return False
    for i in range(STATE_WORDS):
        mem[root + i] = NONE
    mem[root + LEN] = 0
    mem[root + COUNT] = 0
    return True


@jit
def close_group(mem, tags, heads, group):
    """Free all states and tables of `group`; its text stays."""
    page = group[PAGE]
    end = group[PAGE_USED]
    while page != NONE:
        for state in range(page + 4, page + end - STATE_WORDS + 1, STATE_WORDS):
            if mem[state + TABLE] != NONE:
                release(mem, tags, heads, mem[state + TABLE])
        after = mem[page]
        release(mem, tags, heads, page)
        page = after
        end = PAGE_WORDS
    group[PAGE] = NONE
    group[ROOT] = NONE
    group[START] = NONE
    group[START_MATCH] = NONE


@jit
def suffix_state(mem, state, length):
    """The state on `state`'s suffix path that holds the suffix of `length` tokens."""
    while mem[state + LINK] != NONE and mem[mem[state + LINK] + LEN] >= length:
        state = mem[state + LINK]
    return state


@jit(inline="always")
def _grow(mem, tags, heads, group, last, token):
    """Blumer's step: the state of the whole text that ends with `token`, or NONE when out of room."""
    state = step(mem, last, token)
    if state != NONE:
        if mem[state + LEN] == mem[last + LEN] + 1:
            return state
        return _clone(mem, tags, heads, group, last, token, state)
    new = _new_state(mem, tags, heads, group)
    if new == NONE:
        return NONE
    for i in range(STATE_WORDS):
        mem[new + i] = NONE
    mem[new + LEN] = mem[last + LEN] + 1
    mem[new + COUNT] = 0
    mem[new + FIRST] = group[CLOCK]
    parent = last
    state = NONE
    while parent != NONE:
        state = step(mem, parent, token)
        if state != NONE:
            break
        if not _add_edge(mem, tags, heads, parent, token, new):
            return NONE
        parent = mem[parent + LINK]
    if parent == NONE:
        mem[new + LINK] = group[ROOT]
    elif mem[state + LEN] == mem[parent + LEN] + 1:
        mem[new + LINK] = state
    else:
        clone = _clone(mem, tags, heads, group, parent, token, state)
        if clone == NONE:
            return NONE
        mem[new + LINK] = clone
    return new


@jit(inline="always")
def _count(mem, group, number, match, token):
    """Count `token` after every suffix from `match` down; return the state of the longest suffix with it.

    All strings of a state end at the same places, so a state reached from several suffixes is counted once.
    """
    longest = NONE
    counted = NONE
    while match != NONE:
        target = step(mem, match, token)
        if longest == NONE:
            longest = target
        if target != counted:
            mem[target + COUNT] += 1
            mem[target + LAST] = group[CLOCK]
            mem[target + OWNER] = number
            counted = target
        if mem[match + A_TOKEN] != token:
            best = mem[match + A_STATE]
            if mem[target + COUNT] >= mem[best + COUNT]:
                mem[match + B_TOKEN] = mem[match + A_TOKEN]
                mem[match + B_STATE] = best
                mem[match + A_TOKEN] = token
                mem[match + A_STATE] = target
            else:
                mem[match + B_TOKEN] = token
                mem[match + B_STATE] = target
        match = mem[match + LINK]
    mem[group[ROOT] + COUNT] += 1
    return longest


@jit
def extend(mem, tags, heads, group, sequence, token, count_depth):
    """Append `token` to `sequence` of `group` (rows of uint32); False when out of room, the group then being unusable.

    Amortised O(1) structure, at most `count_depth` suffixes counted.
    """
    length = min(sequence[MATCH_LENGTH], count_depth - 1)
    new = _grow(mem, tags, heads, group, sequence[STATE], token)
    if new == NONE:
        return False
    match = suffix_state(mem, sequence[MATCH], length)
    sequence[MATCH] = _count(mem, group, sequence[NUMBER], match, token)
    sequence[MATCH_LENGTH] = length + 1
    sequence[STATE] = new
    group[CLOCK] += 1
    return True
