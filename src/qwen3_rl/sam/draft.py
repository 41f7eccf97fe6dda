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

CANDIDATES = 6
SUFFIXES = 12


@jit
def suffixes(mem, sequence, longest, states, lengths):
    """Fill the states and lengths of `sequence`'s suffixes that have continuations, longest first; return how many.

    The empty suffix (the root) always comes last. `longest` bounds the first; at most len(states) are kept.
    """
    length = min(sequence[MATCH_LENGTH], longest)
    state = suffix_state(mem, sequence[MATCH], length)
    n = 0
    while mem[state + LINK] >= 0:
        if mem[state + A_TOKEN] >= 0 and n < len(states) - 1:
            states[n] = state
            lengths[n] = length
            n += 1
        state = mem[state + LINK]
        length = mem[state + LEN]
    states[n] = state
    lengths[n] = 0
    return n + 1


@jit
def _choose(mem, states, lengths, n, ended, number, clock, weights, min_match, tokens, features):
    """Score edges A and B of each suffix; return (best token or -1, its log-odds, number of candidates).

    `ended` is 1 where the text ends with these suffixes, an occurrence of each without a continuation.
    """
    count = 0
    best = np.float32(-np.inf)
    chosen = NONE
    for i in range(n - 1):
        if lengths[i] < min_match:
            break
        state = states[i]
        for edge in range(2):
            token = mem[state + A_TOKEN] if edge == 0 else mem[state + B_TOKEN]
            known = token < 0
            for c in range(count):
                known = known or tokens[c] == token
            if known:
                continue
            target = mem[state + A_STATE] if edge == 0 else mem[state + B_STATE]
            shorter = states[i + 1] if i + 2 < n else NONE
            target2 = step(mem, shorter, token) if shorter >= 0 else NONE
            total = mem[state + COUNT] - ended
            total2 = mem[shorter + COUNT] - ended if shorter >= 0 else 0
            logit = score(
                mem, weights, features[count], i, lengths[i], state, total, target, shorter, total2, target2, token, number, clock
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
            if mem[state + A_TOKEN] >= 0:
                length = lengths[i] + 1
                states[kept] = state
                lengths[kept] = length
                kept += 1
    return kept


@jit
def draft(mem, group, sequence, weights, longest, min_match, per_match, min_probability, out, asked, asked_features, work):
    """Fill `out` (int32 [k]); return (number of drafted tokens, number of candidates of the first position).

    `asked` int32 [CANDIDATES] and `asked_features` int32 [CANDIDATES, FEATURES] receive the first position's candidates
    for `model.learn`; `work` int32 [2 * SUFFIXES + CANDIDATES * (1 + FEATURES)] is scratch. A token is drafted only
    where it really followed a suffix of at least `min_match` tokens in the group's text, at most `per_match` tokens for
    each token of the longest match, and while the chance that all tokens so far are right is at least `min_probability`.
    """
    states = work[:SUFFIXES]
    lengths = work[SUFFIXES : 2 * SUFFIXES]
    tokens = work[2 * SUFFIXES : 2 * SUFFIXES + CANDIDATES]
    features = work[2 * SUFFIXES + CANDIDATES :].reshape(CANDIDATES, FEATURES)
    n = suffixes(mem, sequence, longest, states, lengths)
    root = states[n - 1]
    number = sequence[NUMBER]
    clock = group[CLOCK]
    token, logit, asked_count = _choose(
        mem, states, lengths, n, 1, number, clock, weights, min_match, asked, asked_features
    )
    limit = min(np.float64(len(out)), per_match * lengths[0])
    right = 1.0
    drafted = 0
    while token >= 0 and drafted < limit:
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
        token, logit, _ = _choose(
            mem, states, lengths, n + 1, 0, number, clock, weights, min_match, tokens, features
        )
        n += 1
    return drafted, asked_count
