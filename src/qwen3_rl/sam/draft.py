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
WORK_WORDS = 2 * SUFFIXES + (3 + FEATURES) * CANDIDATES


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
def _gather(mem, states, lengths, n, least, own, tokens, ranks, targets):
    """Collect edges A and B of each suffix of at least `least` tokens, and `own` (a token or NONE); return how many.

    tokens, ranks (the longest suffix that has the token) and targets (the state it leads to) take up to CANDIDATES.
    """
    count = 0
    for i in range(n - 1):
        if lengths[i] < least:
            break
        state = states[i]
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
            tokens[count] = token
            ranks[count] = i
            targets[count] = target
            count += 1
            if count == CANDIDATES:
                return count
    return count


@jit
def _choose(
    mem,
    states,
    lengths,
    n,
    ended,
    number,
    clock,
    weights,
    own,
    own_length,
    own_age,
    count,
    tokens,
    ranks,
    targets,
    features,
):
    """Score `count` gathered candidates; return the index of the best and its log-odds.

    `ended` is 1 where the text ends with these suffixes, an occurrence of each without a continuation. `own` is the
    token (NONE: none) that last followed here in the sequence's own text, `own_length` tokens matching, `own_age` ago.
    """
    best = np.float32(-np.inf)
    chosen = 0
    for c in range(count):
        i = ranks[c]
        token = tokens[c]
        shorter = states[i + 1] if i + 2 < n else NONE
        target2 = step(mem, shorter, token) if shorter != NONE else NONE
        total = mem[states[i] + COUNT] - ended
        total2 = mem[shorter + COUNT] - ended if shorter != NONE else 0
        own_match = own_length if token == own else 0
        logit = score(
            mem,
            weights,
            features,
            c * FEATURES,
            i,
            lengths[i],
            states[i],
            total,
            targets[c],
            shorter,
            total2,
            target2,
            token,
            number,
            clock,
            own_match,
            own_age,
        )
        if logit > best:
            best = logit
            chosen = c
    return chosen, best


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
def draft(
    mem,
    group,
    sequence,
    weights,
    longest,
    min_match,
    per_match,
    min_probability,
    out,
    chances,
    asked,
    asked_features,
    work,
):
    """Fill `out` (int32 [k]); return (number of drafted tokens, number of candidates of the first position).

    `chances` float32 [k] receives, unless `min_probability` is 0, the chance that the draft up to each token is right.

    `asked` uint32 [CANDIDATES] and `asked_features` uint32 [CANDIDATES * FEATURES] receive the first position's
    candidates for `model.learn`; `work` uint32 [WORK_WORDS] is scratch. The whole draft really followed a suffix of at
    least `min_match` tokens in the group's text; it has at most `per_match` tokens for each token of the longest match,
    and ends where the chance that all of it is right falls below `min_probability`.
    """
    states = work[:SUFFIXES]
    lengths = work[SUFFIXES : 2 * SUFFIXES]
    ranks = work[2 * SUFFIXES : 2 * SUFFIXES + CANDIDATES]
    targets = work[2 * SUFFIXES + CANDIDATES : 2 * SUFFIXES + 2 * CANDIDATES]
    tokens = asked
    features = asked_features
    n = suffixes(mem, sequence, longest, states, lengths)
    root = states[n - 1]
    limit = min(np.float64(len(out)), per_match * lengths[0])
    block = sequence[BLOCK]
    size = np.int64(mem[block + TOKENS]) if block != NONE else 0
    text = block + TEXT_START
    place = NONE
    own_length = 0
    before = NONE
    if size >= 2:
        before = mem[text + size - 1]
        place = place_after(mem, block, mem[text + size - 2], before)
        if place != NONE:
            own_length = common_suffix(mem, block, place, longest)
    right = 1.0
    drafted = 0
    asked_count = 0
    while True:
        own = mem[text + place] if place != NONE else NONE
        count = _gather(mem, states, lengths, n, min_match + drafted, own, tokens, ranks, targets)
        if drafted == 0:
            asked_count = count
        if count == 0:
            break
        chosen = 0
        if count > 1 or drafted == 0 or min_probability > 0:
            # The text's own end counts as an occurrence of its suffixes that nothing followed.
            ended = 1 if drafted == 0 else 0
            chosen, logit = _choose(
                mem,
                states,
                lengths,
                n,
                ended,
                sequence[NUMBER],
                group[CLOCK],
                weights,
                own,
                own_length,
                size - place,
                count,
                tokens,
                ranks,
                targets,
                features,
            )
            if min_probability > 0:
                right *= probability(logit)
                if right < min_probability:
                    break
                chances[drafted] = right
        token = tokens[chosen]
        out[drafted] = token
        drafted += 1
        if drafted >= limit:
            break
        n = _advance(mem, states, lengths, n, token)
        n = min(n, SUFFIXES - 1)
        states[n] = root
        lengths[n] = 0
        n += 1
        if token == own and place + 1 < size:
            place += 1
            own_length += 1
        else:
            place = place_after(mem, block, before, token) if size >= 2 else NONE
            own_length = 2
        before = token
        tokens = work[2 * SUFFIXES + 2 * CANDIDATES : 2 * SUFFIXES + 3 * CANDIDATES]
        features = work[2 * SUFFIXES + 3 * CANDIDATES :]
    return drafted, asked_count
