"""`SamDrafter`: drafts for a whole batch of requests from one suffix automaton for each group of equal prompts."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import accumulate

import numpy as np

from qwen3_rl.sam import kernels
from qwen3_rl.sam.arena import FREE_UNITS, UNIT_BYTES, new_arena
from qwen3_rl.sam.automaton import (
    BLOCK,
    COUNT,
    FIRST,
    GROUP_WORDS,
    LAST,
    LEN,
    LINK,
    MATCH,
    MATCH_LENGTH,
    NONE,
    ROOT,
    TEXT,
    TEXT_TOKENS,
    close_group,
    open_group,
    suffix_state,
)
from qwen3_rl.sam.config import check_settings
from qwen3_rl.sam.model import new_weights

GROUP_BYTES = 1 << 14  # one known group for each of these at most, which bounds the bookkeeping outside the arena


@dataclass(frozen=True)
class Match:
    """The longest suffix of a request's text that also ends elsewhere in its group, and where it ends.

    `first` and `last` count the tokens fed to the group before the end in question, the prompt first. All are 0 when
    nothing matches.
    """

    length: int
    count: int
    first: int
    last: int


@dataclass(eq=False)
class _Group:
    key: bytes
    row: int
    running: set[int] = field(default_factory=set)


class SamDrafter:
    """Draft tokens for running requests; not safe for use from several threads at once.

    k: most tokens in a draft (1 to 64). max_bytes: bound on all text and automata (2**18 to 2**33), a sixteenth of it
    left for bookkeeping; beyond it idle groups go, oldest first, then running ones. sharing: "group" (requests with
    equal prompts feed one automaton) or "self". history_tokens: how much finished text a group keeps for the next time
    its prompt comes (0: a group is freed with its last request). min_match: tokens that must match before the first
    draft (from 1). per_match: most drafted tokens for each matched one. min_probability: a draft ends where the chance
    that all of it is accepted falls below this; 0 drafts k tokens whenever the text goes on, which is best for a fixed
    k. max_match: longest suffix that is matched.
    Raises ValueError for a value outside its range.
    """

    def __init__(
        self,
        k: int,
        max_bytes: int = 1 << 29,
        *,
        sharing: str = "group",
        history_tokens: int = 1 << 16,
        min_match: int = 1,
        per_match: float = 8.0,
        min_probability: float = 0.0,
        max_match: int = 24,
    ):
        check_settings(
            k=k,
            max_bytes=max_bytes,
            sharing=sharing,
            history_tokens=history_tokens,
            min_match=min_match,
            per_match=per_match,
            min_probability=min_probability,
            max_match=max_match,
        )
        self.k = k
        self.max_bytes = max_bytes
        self.sharing = sharing
        self.history_tokens = history_tokens
        self.min_probability = min_probability
        self._max_match = max_match
        self._count_depth = max_match + k
        self._settings = np.array(
            [max_match, min_match, per_match, min_probability, 0, max_match + k], dtype=np.float64
        )
        self._weights = new_weights()
        self.clear()

    # Requests

    def add_request(self, req_id: Hashable, prompt_ids: Sequence[int] | np.ndarray) -> None:
        """Begin a request. prompt_ids: token ids, 1-D, each from 0 to 2**31 - 1.

        Raises ValueError for a known req_id or malformed ids.
        """
        if req_id in self._slots:
            raise ValueError(f"request {req_id!r} is already running")
        prompt = _token_ids(prompt_ids)
        slot = self._free_slots.pop() if self._free_slots else self._grow_tables()
        if self.sharing == "self":
            self._lonely += 1
            key = b"%d" % self._lonely
        else:
            key = blake2b(prompt.tobytes(), digest_size=16).digest()
        group = self._groups.get(key) or self._new_group(key)
        self._idle.pop(key, None)
        self._running.setdefault(key, group)
        words = self._group_rows[group.row]
        if not group.running and words[TEXT_TOKENS] > self.history_tokens:
            self._close(group)
        if words[ROOT] == NONE:
            self._open(group, slot, prompt)
        group.running.add(slot)
        kernels.begin(words, self._sequences[slot], group.row)
        self._slots[req_id] = slot
        self._slot_groups[slot] = group

    def propose(
        self,
        req_ids: Sequence[Hashable],
        tokens: np.ndarray,
        offsets: np.ndarray,
        min_probability: float | None = None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Append new tokens to each request and draft what follows.

        tokens: int32 [total], those of req_ids[i] being tokens[offsets[i]:offsets[i + 1]], offsets: integers [n + 1].
        min_probability: for this call, in place of the drafter's.
        Returns drafts int32 [n, k], their lengths int32 [n], and the chances float32 [n, k] that a draft up to and with
        each token is accepted (0 where min_probability is 0). What lies beyond a length is undefined.
        Raises ValueError for a request that isn't running, offsets that don't fit or a negative token, and appends
        nothing then.
        """
        packed = self._packed(req_ids, tokens, offsets)
        self._settings[kernels.MIN_PROBABILITY] = self.min_probability if min_probability is None else min_probability
        out, chances = self._run(len(req_ids), packed, self.k + 1)
        self._settings[kernels.MIN_PROBABILITY] = self.min_probability
        return out[:, : self.k], out[:, self.k], chances

    def propose_lists(self, req_ids: Sequence[Hashable], new_tokens: Sequence[Sequence[int]]) -> list[list[int]]:
        """As `propose`, in an engine's own form: new_tokens[i] are those of req_ids[i]; returns one draft a request."""
        packed = self._slots_of(req_ids)
        packed += accumulate(map(len, new_tokens), initial=0)
        if len(packed) != 2 * len(req_ids) + 1:
            raise ValueError(f"{len(req_ids)} requests, but new tokens of {len(new_tokens)}")
        for tokens in new_tokens:
            packed += tokens
        out, _ = self._run(len(req_ids), np.array(packed, dtype=np.int32), self.k + 1)
        return [row[: row[-1]] for row in out.tolist()]

    def extend_batch(self, req_ids: Sequence[Hashable], tokens: np.ndarray, offsets: np.ndarray) -> None:
        """As `propose`, without drafts: for steps in which drafting is off."""
        self._run(len(req_ids), self._packed(req_ids, tokens, offsets), 0)

    def finish(self, req_id: Hashable) -> None:
        """End a request, finished or aborted. Raises ValueError when it isn't running."""
        slot = self._slots.pop(req_id, None)
        if slot is None:
            raise ValueError(f"request {req_id!r} isn't running")
        group = self._slot_groups.pop(slot)
        keep = self.sharing == "group" and self.history_tokens > 0
        kernels.finish(*self._arena, self._group_rows[group.row], self._sequences[slot], keep)
        group.running.remove(slot)
        self._free_slots.append(slot)
        if not group.running:
            del self._running[group.key]
            self._idle[group.key] = group
            if not keep:
                self._forget(group)

    def match(self, req_id: Hashable) -> Match:
        """The longest suffix (of at most max_match tokens) of a request's text that also ends elsewhere in its group.

        Raises ValueError when the request isn't running.
        """
        if req_id not in self._slots:
            raise ValueError(f"request {req_id!r} isn't running")
        mem, sequence = self._arena[0], self._sequences[self._slots[req_id]]
        if sequence[MATCH] == NONE:  # there was no room for its group's automaton
            return Match(0, 0, 0, 0)
        length = min(int(sequence[MATCH_LENGTH]), self._max_match)
        state = suffix_state(mem, sequence[MATCH], length)
        while mem[state + LINK] != NONE and mem[state + COUNT] < 2:
            state = mem[state + LINK]
            length = mem[state + LEN]
        if mem[state + LINK] == NONE:
            return Match(0, 0, 0, 0)
        return Match(int(length), int(mem[state + COUNT]), int(mem[state + FIRST]), int(mem[state + LAST]))

    def shares(self, req_id: Hashable) -> bool:
        """Whether a running request's group holds text of other requests too, running or finished."""
        group = self._slot_groups[self._slots[req_id]]
        return len(group.running) > 1 or bool(self._group_rows[group.row, TEXT] != NONE)

    def stats(self) -> dict[str, int]:
        """Numbers of running requests and known groups, bytes in use and their bound, groups evicted so far."""
        mem, tags, heads = self._arena
        used = (len(tags) - int(heads[FREE_UNITS])) * (UNIT_BYTES + 1)
        return {
            "requests": len(self._slots),
            "groups": len(self._groups),
            "bytes_used": used,
            "bytes_reserved": mem.nbytes + tags.nbytes + self._sequences.nbytes + self._group_rows.nbytes,
            "max_bytes": self.max_bytes,
            "evicted": self._evicted,
        }

    def clear(self) -> None:
        """Forget all requests and texts and give the memory back; what was learned about acceptance stays."""
        self._arena = new_arena(self.max_bytes - self.max_bytes // 16)
        self._low = max(2048, len(self._arena[1]) // 64)
        self._settings[kernels.LOW_UNITS] = self._low
        self._slots: dict[Hashable, int] = {}
        self._slot_groups: dict[int, _Group] = {}
        self._groups: dict[bytes, _Group] = {}
        self._running: dict[bytes, _Group] = {}  # by beginning
        self._idle: dict[bytes, _Group] = {}  # by end
        self._free_slots: list[int] = []
        self._free_rows: list[int] = []
        self._lonely = 0
        self._evicted = 0
        self._sequences = np.zeros((0, kernels.ROW_WORDS), dtype=np.uint32)
        self._group_rows = np.zeros((0, GROUP_WORDS), dtype=np.uint32)

    # Feeding

    def _slots_of(self, req_ids) -> list[int]:
        try:
            return [self._slots[req_id] for req_id in req_ids]
        except KeyError as error:
            raise ValueError(f"request {error.args[0]!r} isn't running") from None

    def _packed(self, req_ids, tokens, offsets) -> np.ndarray:
        slots = self._slots_of(req_ids)
        steps = np.diff(offsets)
        if len(steps) != len(slots) or offsets[0] != 0 or offsets[-1] != len(tokens) or (steps < 0).any():
            raise ValueError(f"offsets for {len(slots)} requests and {len(tokens)} tokens don't fit: {offsets}")
        return np.concatenate((slots, offsets, tokens), dtype=np.int32, casting="unsafe")

    def _run(self, n: int, packed: np.ndarray, columns: int) -> tuple[np.ndarray, np.ndarray]:
        out, chances = np.empty((n, columns), dtype=np.int32), np.zeros((n, self.k), dtype=np.float32)
        said, i, at = kernels.DONE, 0, 0
        while True:
            said, i, at = kernels.run_batch(
                *self._arena,
                self._group_rows,
                self._sequences,
                self._weights,
                self._settings,
                packed,
                n,
                i,
                at,
                out,
                chances,
            )
            if said == kernels.DONE:
                return out, chances
            if said == kernels.REFUSED:
                raise ValueError(f"token ids must be from 0 to 2**31 - 1, not {packed[2 * n + 1 + at]}")
            self._relieve(said, int(packed[i]))

    def _feed_prompt(self, slot: int, prompt: np.ndarray) -> None:
        slots, offsets = np.array([slot], dtype=np.int32), np.array([0, len(prompt)], dtype=np.int32)
        at = 0
        while True:
            said, _, at = kernels.feed(
                *self._arena,
                self._group_rows,
                self._sequences,
                slots,
                prompt,
                offsets,
                0,
                at,
                False,
                self._low,
                self._count_depth,
            )
            if said == kernels.DONE:
                return
            self._relieve(said, slot)

    def _relieve(self, said: int, slot: int) -> None:
        """Make the room that a kernel missed at a token of `slot`."""
        if said == kernels.LOW:
            self._make_room(self._low + self._low // 2)
        else:
            self._reset(self._slot_groups[slot])

    def _open(self, group: _Group, slot: int, prompt: np.ndarray) -> None:
        """Build a group's automaton from its prompt and what is left of its texts."""
        words, sequence = self._group_rows[group.row], self._sequences[slot]
        kernels.trim(*self._arena, words, self.history_tokens)
        self._make_room(self._low + (len(prompt) + int(words[TEXT_TOKENS])) * 128 // UNIT_BYTES, besides=group)
        group.running.add(slot)
        self._slot_groups[slot] = group
        if not open_group(*self._arena, words):
            self._reset(group)
        for other in group.running:
            kernels.begin(words, self._sequences[other], group.row)
        self._feed_prompt(slot, prompt)
        kernels.end_prompt(words, sequence)
        if (
            words[TEXT] != NONE
            and words[ROOT] != NONE
            and not kernels.reread(*self._arena, words, sequence, group.row, self._count_depth, self._low)
        ):
            self._reset(group)

    # Memory

    def _make_room(self, units: int, besides: _Group | None = None) -> None:
        """Evict until `units` are free: idle groups, oldest first, then running ones, oldest first.

        An idle group first loses its automaton only: its text is a twentieth of that and serves to build it anew.
        """
        heads = self._arena[2]
        for group in list(self._idle.values()):
            if heads[FREE_UNITS] >= units:
                return
            if self._group_rows[group.row, ROOT] != NONE:
                self._close(group)
        for group in list(self._idle.values()):
            if heads[FREE_UNITS] >= units:
                return
            self._forget(group)
            self._evicted += 1
        for group in list(self._running.values()):
            if heads[FREE_UNITS] >= min(units, self._low * 2):
                return
            if group is not besides:
                self._reset(group)

    def _close(self, group: _Group) -> None:
        close_group(*self._arena, self._group_rows[group.row])

    def _forget(self, group: _Group) -> None:
        """Free everything of an idle group."""
        self._close(group)
        kernels.trim(*self._arena, self._group_rows[group.row], 0)
        self._free_rows.append(group.row)
        del self._groups[group.key], self._idle[group.key]

    def _reset(self, group: _Group) -> None:
        """Empty a running group. Its requests go on from an empty text or, when memory stays short, draft nothing until
        the next request with their prompt begins: a new automaton at once would take the room that was just made."""
        words = self._group_rows[group.row]
        self._close(group)
        kernels.trim(*self._arena, words, 0)
        for slot in group.running:
            kernels.finish(*self._arena, words, self._sequences[slot], False)
        if self._arena[2][FREE_UNITS] >= 2 * self._low:
            open_group(*self._arena, words)
        for slot in group.running:
            kernels.begin(words, self._sequences[slot], group.row)
        self._evicted += 1

    # Tables

    def _new_group(self, key: bytes) -> _Group:
        if len(self._groups) >= self.max_bytes // GROUP_BYTES and self._idle:
            self._forget(next(iter(self._idle.values())))
            self._evicted += 1
        if not self._free_rows:
            rows = len(self._group_rows)
            self._group_rows = _doubled(self._group_rows)
            self._free_rows = list(range(len(self._group_rows) - 1, rows - 1, -1))
        group = _Group(key, self._free_rows.pop())
        words = self._group_rows[group.row]
        words[ROOT] = words[TEXT] = NONE
        words[TEXT_TOKENS] = 0
        self._groups[key] = group
        return group

    def _grow_tables(self) -> int:
        slots = len(self._sequences)
        self._sequences = _doubled(self._sequences)
        self._free_slots = list(range(len(self._sequences) - 1, slots - 1, -1))
        self._sequences[slots:, BLOCK] = NONE
        return self._free_slots.pop()


def _doubled(table: np.ndarray) -> np.ndarray:
    bigger = np.zeros((max(16, 2 * len(table)), *table.shape[1:]), dtype=table.dtype)
    bigger[: len(table)] = table
    return bigger


def _token_ids(ids) -> np.ndarray:
    array = np.asarray(ids)
    if array.size == 0:
        return np.zeros(0, dtype=np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= 1 << 31:
        raise ValueError("token ids must be a 1-D sequence of integers from 0 to 2**31 - 1")
    return np.ascontiguousarray(array, dtype=np.int32)
