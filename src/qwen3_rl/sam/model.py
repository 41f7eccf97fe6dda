"""How likely a continuation is, learned online from what the engine accepted.

A candidate follows a suffix of the text, and that suffix's next shorter neighbour. Each of seven features picks one
weight: how long the suffix is and whether longer ones disagree; how often the token and the suffix occurred; when the
token last followed it, and whether the asking sequence itself wrote that; the latter two for the shorter suffix; how
well the sequence's own latest use of its last two tokens fits; the token itself. Their sum is the log-odds that the
token comes next. After each step the true token moves the weights of all candidates of that step by one step of
stochastic gradient descent. Mixing several context lengths with weights learned online is the idea of context mixing
(Mahoney, "Adaptive weighing of context models for lossless data compression", 2005); the age is what weights recent
text, and old epochs, by use. Nothing here is random: the same calls give the same drafts.
"""

import numpy as np

from qwen3_rl.sam._jit import jit
from qwen3_rl.sam.arena import NONE
from qwen3_rl.sam.automaton import A_TOKEN, COUNT, LAST, OWNER

FEATURES = 7
_COUNTS = 8  # classes of a count
_AGES = 16  # classes of an age, two for each owner
_LENGTHS = 10  # classes of a match length
_RANKS = 4  # how many longer suffixes didn't propose the token
_BASE_COUNT = _RANKS * _LENGTHS * 2
_BASE_AGE = _BASE_COUNT + _COUNTS * _COUNTS
_BASE_COUNT2 = _BASE_AGE + _AGES * 2
_BASE_AGE2 = _BASE_COUNT2 + _COUNTS * _COUNTS * 2 + 1
_BASE_OWN = _BASE_AGE2 + _AGES * 2 + 1
_BASE_TOKEN = _BASE_OWN + _LENGTHS * _AGES + 1
_TOKEN_BITS = 14
SIZE = _BASE_TOKEN + (1 << _TOKEN_BITS)
LEARNING_RATE = 0.05


def new_weights() -> np.ndarray:
    """float32 [SIZE]: the log-odds of the observed share, halved since few observations deserve less trust."""
    weights = np.zeros(SIZE, dtype=np.float32)
    for of_token in range(_COUNTS):
        for of_suffix in range(_COUNTS):
            share = min(0.95, (of_token + 0.1) / (of_suffix + 1.5))
            weights[_BASE_COUNT + of_token * _COUNTS + of_suffix] = 0.5 * np.log(share / (1 - share))
    return weights


@jit
def _count_class(count):
    if count < 5:
        return max(count, 0)
    return 5 if count < 8 else (6 if count < 16 else 7)


@jit
def _age_class(age):
    """Its number of bits, at most 15."""
    if age >= 1 << 14:
        return 15
    bits = 0
    if age >= 1 << 8:
        age >>= 8
        bits = 8
    if age >= 1 << 4:
        age >>= 4
        bits += 4
    if age >= 1 << 2:
        age >>= 2
        bits += 2
    return bits + min(age, 2)


@jit
def _length_class(length):
    if length < 6:
        return length
    return 6 if length < 10 else (7 if length < 16 else 8)


@jit
def score(
    mem,
    weights,
    features,
    at,
    rank,
    length,
    state,
    total,
    target,
    shorter,
    total2,
    target2,
    token,
    number,
    clock,
    own_length,
    own_age,
):
    """Write the FEATURES weight indices of a candidate to features[at:] and return its log-odds.

    `token` leads from `state` (a suffix of `length` tokens seen `total` times with a continuation) to `target`, and
    from `shorter` (NONE when that is the empty suffix) to `target2`. `number` is the asking sequence's, `clock` its
    group's. `own_length`: how much of the text precedes the token in the sequence's own latest use, `own_age` ago (0:
    no such use). `rank`: how many longer suffixes lack it among their best.
    """
    best = 1 if mem[state + A_TOKEN] == token else 0
    features[at] = (min(rank, _RANKS - 1) * _LENGTHS + _length_class(length)) * 2 + best
    features[at + 1] = _BASE_COUNT + _count_class(mem[target + COUNT]) * _COUNTS + _count_class(total)
    own = 1 if mem[target + OWNER] == number else 0
    features[at + 2] = _BASE_AGE + _age_class(clock - mem[target + LAST]) * 2 + own
    if shorter == NONE:
        features[at + 3] = _BASE_AGE2 - 1
        features[at + 4] = _BASE_OWN - 1
    else:
        best = 1 if mem[shorter + A_TOKEN] == token else 0
        classes = _count_class(mem[target2 + COUNT]) * _COUNTS + _count_class(total2)
        features[at + 3] = _BASE_COUNT2 + classes * 2 + best
        own = 1 if mem[target2 + OWNER] == number else 0
        features[at + 4] = _BASE_AGE2 + _age_class(clock - mem[target2 + LAST]) * 2 + own
    if own_length > 0:
        features[at + 5] = _BASE_OWN + _length_class(own_length) * _AGES + _age_class(own_age)
    else:
        features[at + 5] = _BASE_TOKEN - 1
    features[at + 6] = _BASE_TOKEN + (((token * 0x9E3779B1) & 0xFFFFFFFF) >> (32 - _TOKEN_BITS))
    logit = np.float32(0.0)
    for i in range(at, at + FEATURES):
        logit += weights[features[i]]
    return logit


@jit
def probability(logit):
    return 1.0 / (1.0 + np.exp(-logit))


@jit
def learn(weights, tokens, features, count, truth):
    """One gradient step for the `count` candidates of a draft's first position, now that its token is known.

    tokens [CANDIDATES], features [CANDIDATES * FEATURES] as `score` wrote them.
    """
    for c in range(count):
        logit = np.float32(0.0)
        for i in range(c * FEATURES, (c + 1) * FEATURES):
            logit += weights[features[i]]
        error = (1.0 if tokens[c] == truth else 0.0) - probability(logit)
        for i in range(c * FEATURES, (c + 1) * FEATURES):
            weights[features[i]] += np.float32(LEARNING_RATE * error)
