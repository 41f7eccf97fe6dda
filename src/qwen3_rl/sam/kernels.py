"""The calls that Python makes into compiled code: one for a whole batch.

`arena` stands for (mem, tags, heads), as `arena.new_arena` returns them.
"""

import numpy as np

from qwen3_rl.sam._jit import jit
from qwen3_rl.sam.arena import FREE_UNITS, release
from qwen3_rl.sam.automaton import (
    BLOCK,
    GROUP,
    MATCH,
    MATCH_LENGTH,
    NONE,
    NUMBER,
    SEQUENCES,
    START,
    START_LENGTH,
    START_MATCH,
    STATE,
    TEXT,
    TEXT_TOKENS,
    extend,
)
from qwen3_rl.sam.draft import draft
from qwen3_rl.sam.model import learn
from qwen3_rl.sam.text import NEXT, TEXT_START, TOKENS, append, close

# What `feed` says: all done, too little free memory (nothing is broken), no room in mid-token (the group is broken).
DONE, LOW, BROKEN = range(3)


@jit
def begin(group, sequence, row):
    """Put a sequence at the end of its group's prompt."""
    sequence[GROUP] = row
    sequence[STATE] = group[START]
    sequence[MATCH] = group[START_MATCH]
    sequence[MATCH_LENGTH] = group[START_LENGTH]
    sequence[NUMBER] = group[SEQUENCES]
    sequence[BLOCK] = NONE
    group[SEQUENCES] += 1


@jit
def end_prompt(group, sequence):
    """Let every sequence that begins from now on start where `sequence` stands."""
    group[START] = sequence[STATE]
    group[START_MATCH] = sequence[MATCH]
    group[START_LENGTH] = sequence[MATCH_LENGTH]


@jit
def finish(mem, tags, heads, group, sequence, keep):
    """Hand a sequence's text to its group, or free it."""
    block = sequence[BLOCK]
    sequence[BLOCK] = NONE
    if block != NONE and not keep:
        release(mem, tags, heads, block)
    elif block != NONE:
        block = close(mem, tags, heads, block)
        if block != NONE:
            mem[block + NEXT] = group[TEXT]
            group[TEXT] = block
            group[TEXT_TOKENS] += mem[block + TOKENS]


@jit
def trim(mem, tags, heads, group, tokens):
    """Free the group's oldest finished texts so that at most `tokens` tokens stay."""
    kept = 0
    newer = NONE
    block = group[TEXT]
    while block != NONE:
        after = mem[block + NEXT]
        if kept + mem[block + TOKENS] > tokens:
            tokens = 0  # older ones go as well
            if newer == NONE:
                group[TEXT] = NONE
            else:
                mem[newer + NEXT] = NONE
            release(mem, tags, heads, block)
        else:
            kept += mem[block + TOKENS]
            newer = block
        block = after
    group[TEXT_TOKENS] = kept


@jit
def _reverse(mem, group):
    newer = NONE
    block = group[TEXT]
    while block != NONE:
        after = mem[block + NEXT]
        mem[block + NEXT] = newer
        newer = block
        block = after
    group[TEXT] = newer


@jit
def reread(mem, tags, heads, group, sequence, row, count_depth, low):
    """Feed the group's finished texts, oldest first, to its automaton; `sequence` is scratch. False when out of room."""
    _reverse(mem, group)
    block = group[TEXT]
    fits = True
    while block != NONE and fits:
        begin(group, sequence, row)
        for i in range(mem[block + TOKENS]):
            token = mem[block + TEXT_START + i]
            if heads[FREE_UNITS] < low or not extend(mem, tags, heads, group, sequence, token, count_depth):
                fits = False
                break
        block = mem[block + NEXT]
    _reverse(mem, group)
    return fits


@jit
def feed(mem, tags, heads, groups, sequences, slots, tokens, offsets, cursor, keep, low, count_depth):
    """Append tokens[offsets[i]:offsets[i + 1]] to sequence slots[i], for all i, from `cursor` (int64 [2]: i, token) on.

    Returns DONE, LOW or BROKEN, the last two with the cursor at the token that was not appended.
    """
    while cursor[0] < len(slots):
        sequence = sequences[slots[cursor[0]]]
        group = groups[sequence[GROUP]]
        while cursor[1] < offsets[cursor[0] + 1]:
            if heads[FREE_UNITS] < low:
                return LOW
            token = tokens[cursor[1]]
            if not extend(mem, tags, heads, group, sequence, token, count_depth):
                return BROKEN
            if keep:
                block = append(mem, tags, heads, sequence[BLOCK], token)
                if block == NONE:
                    return BROKEN
                sequence[BLOCK] = block
            cursor[1] += 1
        cursor[0] += 1
    return DONE


@jit
def learn_batch(weights, asked, asked_tokens, asked_features, slots, tokens, offsets):
    """Teach the model what followed the last draft of each sequence that has one."""
    for i in range(len(slots)):
        slot = slots[i]
        if asked[slot] > 0 and offsets[i] < offsets[i + 1]:
            learn(weights, asked_tokens[slot], asked_features[slot], asked[slot], tokens[offsets[i]])
            asked[slot] = 0


@jit
def draft_batch(
    mem, groups, sequences, weights, asked, asked_tokens, asked_features, slots, limits, work, drafts, lengths
):
    """Fill drafts int32 [n, k] and lengths int32 [n]; `limits` float64 [4]: see `draft.draft`."""
    for i in range(len(slots)):
        slot = slots[i]
        sequence = sequences[slot]
        lengths[i], asked[slot] = draft(
            mem,
            groups[sequence[GROUP]],
            sequence,
            weights,
            np.int64(limits[0]),
            np.int64(limits[1]),
            limits[2],
            limits[3],
            drafts[i],
            asked_tokens[slot],
            asked_features[slot],
            work,
        )
