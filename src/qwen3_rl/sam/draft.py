"""Drafts: walk all suffixes of a text at once and take, at each position, the continuation most likely to be accepted.

Sources: drafting from a suffix automaton, Hu et al., "SAM Decoding", 2024 (arXiv 2411.10666); frequency as the measure
of a continuation, Oliaro et al., "SuffixDecoding", 2024 (arXiv 2411.04975). Choosing anew at each position among all
suffixes, by learned log-odds, is this module's own.
"""

import numpy as np

from qwen3_rl.sam._jit import jit
from qwen3_rl.sam.automaton import (
    A_STATE,
    A_TOKEN,
    B_STATE,
    B_TOKEN,
    BLOCK,
    CLOCK,
    COUNT,
    LEN,
    LINK,
    MATCH,
    MATCH_LENGTH,
    NONE,
    NUMBER,
    step,
    suffix_state,
)
from qwen3_rl.sam.model import FEATURES, probability, score
from qwen3_rl.sam.text import TEXT_START, TOKENS, common_suffix, place_after

CANDIDATES = 4
SUFFIXES = 8


@jit
def suffixes(mem, sequence, longest, states, lengths):
    """Fill the states and lengths of `sequence`'s suffixes that have continuations, longest first; return how many.

    The empty suffix (the root) always comes last. `longest` bounds the first; at most len(states) are kept.
    """
    length = min(sequence[MATCH_LENGTH], longest)
    state = suffix_state(mem, sequence[MATCH], length)
    n = 0
    while mem[state + LINK] != NONE:
        if mem[state + A_TOKEN] != NONE and n < len(states) - 1:
            states[n] = state
            lengths[n] = length
            n += 1
        state = mem[state + LINK]
        length = mem[state + LEN]
    states[n] = state
    lengths[n] = 0
    return n + 1


@jit
def _choose(mem, states, lengths, n, ended, number, clock, weights, min_match, own, own_length, own_age, tokens, features):
    """Score edges A and B of each suffix and the token `own`; return (best token or NONE, its log-odds, candidates).

    `ended` is 1 where the text ends with these suffixes, an occurrence of each without a continuation. `own` is the
    token (NONE: none) that last followed here in the sequence's own text, `own_length` tokens matching, `own_age` ago.
    """
    count = 0
    best = np.float32(-np.inf)
    chosen = NONE
    for i in range(n - 1):
        if lengths[i] < min_match:
            break
        state = states[i]
        shorter = states[i + 1] if i + 2 < n else NONE
        total = mem[state + COUNT] - ended
        total2 = mem[shorter + COUNT] - ended if shorter != NONE else 0
        for edge in range(3):
            if edge == 0:
                token, target = mem[state + A_TOKEN], mem[state + A_STATE]
            elif edge == 1:
                token, target = mem[state + B_TOKEN], mem[state + B_STATE]
            else:
                token, target = own, NONE
            known = token == NONE
            for c in range(count):
                known = known or tokens[c] == token
            if known:
                continue
            if edge == 2:
                target = step(mem, state, token)
                if target == NONE:
                    continue
            target2 = step(mem, shorter, token) if shorter != NONE else NONE
            logit = score(
                mem, weights, features, count * FEATURES, i, lengths[i], state, total, target, shorter, total2, target2, token, number, clock,
                own_length if token == own else 0, own_age
            )
            if logit > best:
                best = logit
                chosen = token
            tokens[count] = token
            count += 1
            if count == CANDIDATES:
                return chosen, best, count
    return chosen, best, count


@jit
def _advance(mem, states, lengths, n, token):
    """Replace each suffix by itself followed by `token`, dropping those that never were; return how many remain."""
    kept = 0
    before = NONE
    for i in range(n):
        state = step(mem, states[i], token)
        if state != NONE and state != before:
            before = state
            if mem[state + A_TOKEN] != NONE:
                length = lengths[i] + 1
                states[kept] = state
                lengths[kept] = length
                kept += 1
    return kept


@jit
def draft(mem, group, sequence, weights, longest, min_match, per_match, min_probability, out, asked, asked_features, work):
    """Fill `out` (int32 [k]); return (number of drafted tokens, number of candidates of the first position).

    `asked` uint32 [CANDIDATES] and `asked_features` uint32 [CANDIDATES * FEATURES] receive the first position's candidates
    for `model.learn`; `work` uint32 [2 * SUFFIXES + CANDIDATES * (1 + FEATURES)] is scratch. A token is drafted only
    where it really followed a suffix of at least `min_match` tokens in the group's text, at most `per_match` tokens for
    each token of the longest match, and while the chance that all tokens so far are right is at least `min_probability`.
    """
    states = work[:SUFFIXES]
    lengths = work[SUFFIXES : 2 * SUFFIXES]
    tokens = work[2 * SUFFIXES : 2 * SUFFIXES + CANDIDATES]
    features = work[2 * SUFFIXES + CANDIDATES :]
    n = suffixes(mem, sequence, longest, states, lengths)
    root = states[n - 1]
    number = sequence[NUMBER]
    clock = group[CLOCK]
    block = sequence[BLOCK]
    size = mem[block + TOKENS] if block != NONE else 0
    text = block + TEXT_START
    place = place_after(mem, block, mem[text + size - 2], mem[text + size - 1]) if size >= 2 else NONE
    own_length = common_suffix(mem, block, place, longest) if place != NONE else 0
    before = mem[text + size - 1] if size > 0 else NONE
    token, logit, asked_count = _choose(
        mem, states, lengths, n, 1, number, clock, weights, min_match, mem[text + place] if place != NONE else NONE, own_length, size - place, asked, asked_features
    )
    limit = min(np.float64(len(out)), per_match * lengths[0])
    right = 1.0
    drafted = 0
    while token != NONE and drafted < limit:
        right *= probability(logit)
        if right < min_probability:
            break
        out[drafted] = token
        drafted += 1
        if drafted >= limit:
            break
        n = _advance(mem, states, lengths, n, token)
        n = min(n, SUFFIXES - 1)
        states[n] = root
        lengths[n] = 0
        n += 1
        if place != NONE and mem[text + place] == token and place + 1 < size:
            place += 1
            own_length += 1
        else:
            place = place_after(mem, block, before, token) if size >= 2 else NONE
            own_length = 2
        before = token
        token, logit, _ = _choose(
            mem, states, lengths, n, 0, number, clock, weights, min_match + drafted, mem[text + place] if place != NONE else NONE, own_length, size - place, tokens, features
        )
    return drafted, asked_count
