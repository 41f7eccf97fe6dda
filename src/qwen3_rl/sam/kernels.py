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
    ROOT,
    SEQUENCE_WORDS,
    SEQUENCES,
    START,
    START_LENGTH,
    START_MATCH,
    STATE,
    TEXT,
    TEXT_TOKENS,
    extend,
)
from qwen3_rl.sam.draft import CANDIDATES, WORK_WORDS, draft
from qwen3_rl.sam.model import FEATURES, learn
from qwen3_rl.sam.text import NEXT, TEXT_START, TOKENS, append, close

# What `feed` says: all done, too little free memory (nothing is broken), no room in mid-token (the group is broken).
# `run_batch` may also refuse a batch with a negative token, before it changes anything.
DONE, LOW, BROKEN, REFUSED = range(4)
# The rest of a sequence's row: number of candidates of its last draft's first position, their tokens and features.
ASKED = SEQUENCE_WORDS
TOKENS_AT = ASKED + 1
FEATURES_AT = TOKENS_AT + CANDIDATES
ROW_WORDS = FEATURES_AT + CANDIDATES * FEATURES
# Settings: see SamDrafter; the smallest number of free arena units to work with; the longest suffix that is counted.
MAX_MATCH, MIN_MATCH, PER_MATCH, MIN_PROBABILITY, LOW_UNITS, COUNT_DEPTH = range(6)


@jit
def begin(group, sequence, row):
    """Put a sequence at the end of its group's prompt."""
    sequence[GROUP] = row
    sequence[STATE] = group[START]
    sequence[MATCH] = group[START_MATCH]
    sequence[MATCH_LENGTH] = group[START_LENGTH]
    sequence[NUMBER] = group[SEQUENCES]
    sequence[BLOCK] = NONE
    sequence[ASKED] = 0
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
    """Feed the group's finished texts, oldest first, to its automaton; `sequence` is scratch. False: out of room."""
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
def feed(mem, tags, heads, groups, sequences, slots, tokens, offsets, i, at, keep, low, count_depth):
    """Append tokens[offsets[j]:offsets[j + 1]] to sequence slots[j], for j from `i` on, beginning with tokens[at].

    Returns (DONE, LOW or BROKEN, j, index of the token that was not appended). `keep`: also to the sequence's own text.
    A group without an automaton (there was no room for one) is passed over.
    """
    while i < len(slots):
        sequence = sequences[slots[i]]
        group = groups[sequence[GROUP]]
        if group[ROOT] == NONE:
            at = np.int64(offsets[i + 1])
        while at < offsets[i + 1]:
            if heads[FREE_UNITS] < low:
                return LOW, i, at
            token = tokens[at]
            if not extend(mem, tags, heads, group, sequence, token, count_depth):
                return BROKEN, i, at
            if keep:
                block = append(mem, tags, heads, sequence[BLOCK], token)
                if block == NONE:
                    return BROKEN, i, at
                sequence[BLOCK] = block
            at += 1
        i += 1
    return DONE, i, at


@jit
def run_batch(mem, tags, heads, groups, sequences, weights, settings, packed, n, i, at, out, chances):
    """Learn, feed, then draft for n requests in one call; returns what `feed` does, and drafts only when that is DONE.

    sequences uint32 [any, ROW_WORDS]; settings float64: see the names above; packed int32: n slots, n + 1 offsets, then
    the tokens (one array, since each costs a call 0.15 us); i, at: where to go on, 0 and 0 at first; out int32
    [n, k + 1]: the drafts and, last, their lengths, or [n, 0] to draft nothing; chances float32 [n, k]: see `draft`.
    """
    slots = packed[:n]
    offsets = packed[n : 2 * n + 1]
    tokens = packed[2 * n + 1 :]
    if i == 0 and at == 0:
        for j in range(len(tokens)):
            if tokens[j] < 0:
                return REFUSED, 0, j
        for j in range(n):
            row = sequences[slots[j]]
            if row[ASKED] > 0 and offsets[j] < offsets[j + 1]:
                learn(weights, row[TOKENS_AT:FEATURES_AT], row[FEATURES_AT:], np.int64(row[ASKED]), tokens[offsets[j]])
                row[ASKED] = 0
    low, depth = np.int64(settings[LOW_UNITS]), np.int64(settings[COUNT_DEPTH])
    said, i, at = feed(mem, tags, heads, groups, sequences, slots, tokens, offsets, i, at, True, low, depth)
    k = out.shape[1] - 1
    if said == DONE and k > 0:
        work = np.empty(WORK_WORDS, dtype=np.uint32)
        for j in range(n):
            row = sequences[slots[j]]
            out[j, k] = 0
            if groups[row[GROUP], ROOT] == NONE:
                continue
            out[j, k], row[ASKED] = draft(
                mem,
                groups[row[GROUP]],
                row,
                weights,
                np.int64(settings[MAX_MATCH]),
                np.int64(settings[MIN_MATCH]),
                settings[PER_MATCH],
                settings[MIN_PROBABILITY],
                out[j, :k],
                chances[j],
                row[TOKENS_AT:FEATURES_AT],
                row[FEATURES_AT:],
                work,
            )
    return said, i, at
