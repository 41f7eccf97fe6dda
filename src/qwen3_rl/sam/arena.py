"""A buddy allocator inside one uint32 array: every state, edge table and text of every group lives in it.

One array means one bound on memory, no per-group arrays to grow and copy, and a group that ends gives all of it back.
A block of order `o` is 2**o units of 16 bytes (4 words) and is named by its first word's index, a multiple of 4.
Source: Knowlton, "A fast storage allocator", CACM 8(10), 1965.
"""

import numpy as np

from qwen3_rl.sam._jit import jit

UNIT_WORDS = 4
UNIT_BYTES = 16
MAX_ORDER = 20
NONE = 0xFFFFFFFF  # no block, no state, no token
FREE = 128  # flag in a tag: the block is on a free list
FREE_UNITS = MAX_ORDER + 1  # index in `heads` of the number of free units


def new_arena(max_bytes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (mem, tags, heads) of at most `max_bytes` together.

    mem uint32 [4 * units]: the words, zero pages that the system commits at first touch; tags uint8 [units]: order and
    FREE flag at each block's first unit; heads int64 [22]: first free block of each order or NONE, then free units.
    """
    heads = np.full(MAX_ORDER + 2, NONE, dtype=np.int64)
    units = (max_bytes - heads.nbytes) // (UNIT_BYTES + 1)
    mem = np.zeros(units * UNIT_WORDS, dtype=np.uint32)
    tags = np.zeros(units, dtype=np.uint8)
    heads[FREE_UNITS] = 0
    _carve(mem, tags, heads)
    return mem, tags, heads


@jit
def _push(mem, tags, heads, at, order):
    first = heads[order]
    mem[at] = first
    mem[at + 1] = NONE
    if first != NONE:
        mem[first + 1] = at
    heads[order] = at
    tags[at // 4] = order | FREE


@jit
def _unlink(mem, heads, at, order):
    after = np.int64(mem[at])
    before = np.int64(mem[at + 1])
    if before != NONE:
        mem[before] = after
    else:
        heads[order] = after
    if after != NONE:
        mem[after + 1] = before


@jit
def _carve(mem, tags, heads):
    """Cover the array with the largest aligned blocks, pushed from the end so that low addresses go out first."""
    units = len(tags)
    end = units
    while end > 0:
        order = 0
        while order < MAX_ORDER and end % (2 << order) == 0 and (2 << order) <= end:
            order += 1
        end -= 1 << order
        _push(mem, tags, heads, end * 4, order)
        heads[FREE_UNITS] += 1 << order


@jit
def alloc(mem, tags, heads, order):
    """Return a block of `order` with undefined content, or NONE when no free block is large enough."""
    have = order
    while have <= MAX_ORDER and heads[have] == NONE:
        have += 1
    if have > MAX_ORDER:
        return NONE
    at = heads[have]
    _unlink(mem, heads, at, have)
    while have > order:
        have -= 1
        _push(mem, tags, heads, at + (4 << have), have)
    tags[at // 4] = order
    heads[FREE_UNITS] -= 1 << order
    return at


@jit
def release(mem, tags, heads, at):
    """Give a block back and join it with its free buddies."""
    unit = at // 4
    order = np.int64(tags[unit])
    heads[FREE_UNITS] += 1 << order
    while order < MAX_ORDER:
        buddy = unit ^ (1 << order)
        if buddy + (1 << order) > len(tags) or tags[buddy] != order | FREE:
            break
        _unlink(mem, heads, buddy * 4, order)
        unit = min(unit, buddy)
        order += 1
    _push(mem, tags, heads, unit * 4, order)
