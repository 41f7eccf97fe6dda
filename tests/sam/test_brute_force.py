"""The automaton against a list of all texts, after any interleaving of siblings, ends, trims, evictions and returns."""

from hashlib import blake2b

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from qwen3_rl.sam import SamDrafter
from qwen3_rl.sam.arena import NONE
from qwen3_rl.sam.automaton import COUNT, FIRST, LAST, ROOT, step

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=6)
WIDE = st.lists(st.integers(0, 40), min_size=1, max_size=60)  # enough distinct tokens for hashed edge tables
HISTORY = 25


class Model:
    """One group: `ends` lists the text before and with each fed token, in the order of feeding."""

    def __init__(self, prompt):
        self.prompt = tuple(prompt)
        self.finished: list[tuple] = []
        self.running: dict[int, tuple] = {}  # responses
        self.base: dict[int, tuple] = {}  # what precedes them: the prompt, or nothing after an eviction
        self.start = self.prompt
        self.ends: list[tuple] = []
        self._feed((), self.prompt)

    def _feed(self, before, tokens):
        for i in range(len(tokens)):
            self.ends.append(before + tuple(tokens[: i + 1]))

    def add(self, req):
        self.running[req], self.base[req] = (), self.start

    def feed(self, req, tokens):
        self._feed(self.base[req] + self.running[req], tokens)
        self.running[req] += tuple(tokens)

    def finish(self, req):
        if self.running[req]:
            self.finished.append(self.running[req])
        del self.running[req], self.base[req]

    def rebuild(self):
        kept, total = [], 0
        for text in reversed(self.finished):
            if total + len(text) > HISTORY:
                break
            kept.insert(0, text)
            total += len(text)
        self.finished, self.ends, self.start = kept, [], self.prompt
        self._feed((), self.prompt)
        for text in kept:
            self._feed(self.prompt, text)

    def reset(self):
        self.ends, self.finished, self.start = [], [], ()
        self.running = dict.fromkeys(self.running, ())
        self.base = dict.fromkeys(self.base, ())

    def where(self, string):
        n = len(string)
        return [i for i, text in enumerate(self.ends) if text[-n:] == string]


class Machine(RuleBasedStateMachine):
    depth, k = 6, 4

    def __init__(self):
        super().__init__()
        self.drafter = SamDrafter(self.k, 1 << 18, history_tokens=HISTORY, max_match=self.depth)
        self.empty = self.drafter.stats()["bytes_used"]
        self.models: dict[tuple, Model] = {}
        self.where: dict[int, tuple] = {}
        self.next = 0

    @rule(prompt=st.sampled_from([(0, 1, 0, 1), (2,), ()]))
    def add(self, prompt):
        model = self.models.get(prompt)
        if model is None:
            model = self.models[prompt] = Model(prompt)
        elif not model.running and sum(map(len, model.finished)) > HISTORY:
            model.rebuild()
        self.drafter.add_request(self.next, list(prompt))
        model.add(self.next)
        self.where[self.next] = prompt
        self.next += 1

    @precondition(lambda self: self.where)
    @rule(data=st.data(), wide=st.booleans())
    def step_all(self, data, wide):
        """New tokens for some requests in one call; drafts are checked against what was fed."""
        reqs = data.draw(st.lists(st.sampled_from(sorted(self.where)), min_size=1, unique=True))
        new = [data.draw(WIDE if wide else TOKENS) for _ in reqs]
        drafts = self.drafter.propose_lists(reqs, new)
        for req, tokens in zip(reqs, new, strict=True):
            self.models[self.where[req]].feed(req, tokens)
        for req, draft in zip(reqs, drafts, strict=True):
            model = self.models[self.where[req]]
            text = model.base[req] + model.running[req]
            assert len(draft) <= self.k
            if draft:
                together = (text[-1], *draft)
                assert any(together == end[i : i + len(together)] for end in model.ends for i in range(len(end))), (
                    "a draft that never occurred"
                )
            elif len(text) > 0:
                ends = [i for i in model.where(text[-1:]) if self._goes_on(model, i)]
                assert not ends, "no draft where the text goes on"

    @staticmethod
    def _goes_on(model, i):
        return any(end[:-1] == model.ends[i] for end in model.ends)

    @precondition(lambda self: self.where)
    @rule(data=st.data())
    def finish(self, data):
        req = data.draw(st.sampled_from(sorted(self.where)))
        self.drafter.finish(req)
        self.models[self.where.pop(req)].finish(req)

    @precondition(lambda self: any(not model.running for model in self.models.values()))
    @rule(data=st.data(), entirely=st.booleans())
    def evict_idle(self, data, entirely):
        prompt = data.draw(st.sampled_from([p for p, model in self.models.items() if not model.running]))
        group = next(g for g in self.drafter._idle.values() if self._prompt_of(g) == prompt)
        if entirely:
            self.drafter._forget(group)
            del self.models[prompt]
        else:  # the automaton goes, the text stays and is read again when the prompt returns
            self.drafter._close(group)
            self.drafter.add_request("back", list(prompt))
            self.drafter.finish("back")
            self.models[prompt].rebuild()

    @precondition(lambda self: self.where)
    @rule(data=st.data())
    def evict_running(self, data):
        prompt = self.where[data.draw(st.sampled_from(sorted(self.where)))]
        group = next(g for g in self.drafter._running.values() if self._prompt_of(g) == prompt)
        self.drafter._reset(group)
        self.models[prompt].reset()

    def _prompt_of(self, group):
        for prompt in self.models:
            if blake2b(np.array(prompt, dtype=np.int32).tobytes(), digest_size=16).digest() == group.key:
                return prompt
        return None

    @invariant()
    def strings_agree(self):
        """Every short string: occurrences, earliest and latest end."""
        mem = self.drafter._arena[0]
        for group in [*self.drafter._running.values(), *self.drafter._idle.values()]:
            model = self.models[self._prompt_of(group)]
            root = int(self.drafter._group_rows[group.row][ROOT])
            strings = {end[-n:] for end in model.ends for n in range(1, min(self.depth, len(end)) + 1)}
            for string in strings | {(0, 0, 0), (2, 1)}:
                state = root
                for token in string:
                    state = step(mem, state, token) if state != NONE else NONE
                ends = model.where(string)
                if not ends:
                    assert state == NONE
                else:
                    assert (mem[state + COUNT], mem[state + FIRST], mem[state + LAST]) == (len(ends), ends[0], ends[-1])

    @invariant()
    def longest_matches_agree(self):
        for req, prompt in self.where.items():
            model = self.models[prompt]
            text = model.base[req] + model.running[req]
            match = self.drafter.match(req)
            length = max(
                (n for n in range(1, min(self.depth, len(text)) + 1) if len(model.where(text[-n:])) > 1), default=0
            )
            assert match.length == length
            if length:
                ends = model.where(text[-length:])
                assert (match.count, match.first, match.last) == (len(ends), ends[0], ends[-1])

    def teardown(self):
        for req in self.where:
            self.drafter.finish(req)
        for group in list(self.drafter._idle.values()):
            self.drafter._forget(group)
        assert self.drafter.stats()["bytes_used"] == self.empty


class ShallowMachine(Machine):
    """Texts soon outgrow the counted depth, so that counted suffixes move to clones."""

    depth, k = 2, 1


SETTINGS = settings(max_examples=80, stateful_step_count=25, deadline=None)
Machine.TestCase.settings = ShallowMachine.TestCase.settings = SETTINGS
TestDeep = Machine.TestCase
TestShallow = ShallowMachine.TestCase
