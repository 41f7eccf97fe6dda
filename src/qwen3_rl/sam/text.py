"""A sequence's own text, with an index of where each pair of tokens last stood in it.

The automaton forgets which sibling said what. A request's own latest use of a pair says much about its next token, and
costs one hash slot: the slot holds the place after the pair, later pairs overwrite, and a reader checks the text. That
is how LZ77 coders find matches (Ziv and Lempel, 1977), with chains of one.

A running text's block is NEXT, TOKENS, ORDER, one spare word, then tokens up to its middle, then the index; a finished
text's block is the same without the index.
"""

from qwen3_rl.sam._jit import jit
from qwen3_rl.sam.arena import NONE, alloc, release

NEXT, TOKENS, ORDER = range(3)
TEXT_START = 4
FIRST_ORDER = 4


@jit
def _slot(block, order, before, token):
    """Index of the word for the pair (before, token)."""
    mixed = ((before * 0x9E3779B1 + token) * 0x85EBCA6B) & 0xFFFFFFFF
    return block + (2 << order) + (mixed >> (31 - order))


@jit
def _index(mem, block, place):
    """Let the pair before `place` lead to it."""
    order = mem[block + ORDER]
    at = block + TEXT_START + place
    mem[_slot(block, order, mem[at - 2], mem[at - 1])] = place


@jit
def append(mem, tags, heads, block, token):
    """Append to a running text (block NONE: none yet); return its block, which may move, or NONE: no room."""
    if block == NONE or mem[block + TOKENS] + TEXT_START == 2 << mem[block + ORDER]:
        order = FIRST_ORDER if block == NONE else mem[block + ORDER] + 1
        bigger = alloc(mem, tags, heads, order)
        if bigger == NONE:
            return NONE
        for i in range(bigger + (2 << order), bigger + (4 << order)):
            mem[i] = 0
        mem[bigger + TOKENS] = 0
        mem[bigger + ORDER] = order
        if block != NONE:
            mem[bigger + TOKENS] = mem[block + TOKENS]
            for i in range(mem[block + TOKENS]):
                mem[bigger + TEXT_START + i] = mem[block + TEXT_START + i]
                if i >= 2:
                    _index(mem, bigger, i)
            release(mem, tags, heads, block)
        block = bigger
    place = mem[block + TOKENS]
    mem[block + TEXT_START + place] = token
    mem[block + TOKENS] = place + 1
    if place >= 2:
        _index(mem, block, place)
    return block


@jit
def place_after(mem, block, before, token):
    """Where the text last went on after (before, token), or NONE."""
    place = mem[_slot(block, mem[block + ORDER], before, token)]
    at = block + TEXT_START + place
    if place >= 2 and mem[at - 2] == before and mem[at - 1] == token:
        return place
    return NONE


@jit
def common_suffix(mem, block, place, most):
    """How many tokens before `place` equal those at the text's end, up to `most`."""
    end = block + TEXT_START + mem[block + TOKENS]
    at = block + TEXT_START + place
    length = 0
    while length < most and length < place and mem[at - 1 - length] == mem[end - 1 - length]:
        length += 1
    return length


@jit
def close(mem, tags, heads, block):
    """Move a text that ended to a block without an index; return that block, or NONE: no room, the text is dropped."""
    order = FIRST_ORDER - 1
    while 4 << order < TEXT_START + mem[block + TOKENS]:
        order += 1
    small = alloc(mem, tags, heads, order)
    if small != NONE:
        for i in range(TEXT_START + mem[block + TOKENS]):
            mem[small + i] = mem[block + i]
        mem[small + ORDER] = order
    release(mem, tags, heads, block)
    return small
