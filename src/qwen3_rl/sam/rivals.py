"""One face for the drafters that `replay` compares: this package's, vLLM's n-gram lookup, arctic-inference's cache.

Each has begin(req, prompt), step(reqs, new tokens) -> drafts, end(req), learn(prompt, response) for text that is known
beforehand, and bytes_used() (None: unknown or nothing kept). New tokens and drafts are lists of lists of int, as in an
engine; prompts and responses are int32 [n].
"""

import importlib.util
import sys
import types
from pathlib import Path

import numpy as np

from qwen3_rl.errors import UserError
from qwen3_rl.sam.drafter import SamDrafter


class Sam:
    def __init__(self, k: int, sharing: str, **settings):
        self._drafter = SamDrafter(k, sharing="self" if sharing == "self" else "group", **settings)
        self._known = 0

    def begin(self, req, prompt):
        self._drafter.add_request(req, prompt)

    def step(self, reqs, new):
        return self._drafter.propose_lists(reqs, new)

    def end(self, req):
        self._drafter.finish(req)

    def learn(self, prompt, response):
        self._known += 1
        req = ("known", self._known)
        self._drafter.add_request(req, prompt)
        self._drafter.extend_batch([req], response, np.array([0, len(response)]))
        self._drafter.finish(req)

    def bytes_used(self):
        return self._drafter.stats()["bytes_used"]


class Arctic:
    """arctic-inference's SuffixDecodingCache, called as vLLM's SuffixDecodingProposer does.

    Its global tree holds the responses of all prompts; with sharing "self" it is off.
    """

    def __init__(self, k: int, sharing: str, spec_factor: float, depth: int = 64):
        from arctic_inference.suffix_decoding import SuffixDecodingCache

        self._cache = SuffixDecodingCache(depth, 0 if sharing == "self" else -1)
        self._k, self._factor, self._depth = k, spec_factor, depth
        self._texts: dict = {}
        self._known = 0

    def begin(self, req, prompt):
        self._cache.start_request(req, prompt)
        self._texts[req] = (np.concatenate((prompt, np.zeros(1024, dtype=np.int32))), len(prompt))

    def step(self, reqs, new):
        drafts = []
        for req, tokens in zip(reqs, new, strict=True):
            text, size = self._texts[req]
            end = size + len(tokens)
            if end > len(text):
                text = np.concatenate((text, np.zeros(end, dtype=np.int32)))
            text[size:end] = tokens
            self._texts[req] = (text, end)
            self._cache.add_active_response(req, tokens)
            context = text[max(0, end - self._depth) : end]
            draft = self._cache.speculate(req, context, max_spec_tokens=self._k, max_spec_factor=self._factor)
            drafts.append(draft.token_ids)
        return drafts

    def end(self, req):
        self._cache.stop_request(req)
        del self._texts[req]

    def learn(self, prompt, response):
        self._known += 1
        req = ("known", self._known)
        self._cache.start_request(req, prompt)
        self._cache.add_active_response(req, response)
        self._cache.stop_request(req)

    def bytes_used(self):
        trees = [self._cache._global_tree, *self._cache._local_trees.values()]
        return sum(tree.estimate_memory() for tree in trees)


class Ngram:
    """vLLM's NgramProposer with n from 1 to 4. The matrix of token ids is the engine's own and is not timed."""

    def __init__(self, k: int, sharing: str, proposer_class: type, rows: int, width: int):
        config = types.SimpleNamespace(
            speculative_config=types.SimpleNamespace(
                prompt_lookup_min=1, prompt_lookup_max=4, num_speculative_tokens=k
            ),
            model_config=types.SimpleNamespace(max_model_len=width),
            scheduler_config=types.SimpleNamespace(max_num_seqs=max(rows, 1024)),
            parallel_config=types.SimpleNamespace(tensor_parallel_size=1),
        )
        self._proposer = proposer_class(config)
        self._ids = np.zeros((rows, width), dtype=np.int32)
        self._sizes = np.zeros(rows, dtype=np.int32)
        self._rows: dict = {}

    def begin(self, req, prompt):
        row = min(set(range(len(self._sizes))) - set(self._rows.values()))
        self._rows[req] = row
        self._ids[row, : len(prompt)] = prompt
        self._sizes[row] = len(prompt)

    def note(self, reqs, new):
        """Put new tokens into the matrix: the engine's work, before `step`."""
        for req, tokens in zip(reqs, new, strict=True):
            row, size = self._rows[req], self._sizes[self._rows[req]]
            self._ids[row, size : size + len(tokens)] = tokens
            self._sizes[row] += len(tokens)
        rows = [self._rows[req] for req in reqs]
        self._view = (self._sizes, self._ids) if rows == list(range(len(self._sizes))) else None
        if self._view is None:
            self._view = (self._sizes[rows], self._ids[rows])

    def step(self, reqs, new):
        return self._proposer.propose(new, reqs, *self._view, set())

    def end(self, req):
        del self._rows[req]

    def learn(self, prompt, response):
        raise NotImplementedError("an n-gram lookup knows no other text")

    def bytes_used(self):
        return None


def ngram_class(vllm: str | None) -> type | None:
    """vLLM's NgramProposer: from the folder `vllm` (one that holds vllm/), else as installed, else None.

    Raises UserError when the folder lacks it. Only its one file is run, so vLLM needs no dependencies.
    """
    if vllm is None:
        spec = importlib.util.find_spec("vllm")
        if spec is None or spec.origin is None:
            return None
        vllm = str(Path(spec.origin).parent.parent)
    path = Path(vllm) / "vllm/v1/spec_decode/ngram_proposer.py"
    if not path.is_file():
        raise UserError(f"no {path}", "give --vllm the folder that holds vLLM's source or installation (vllm/ in it)")
    stand_in = types.ModuleType("vllm.config")
    stand_in.VllmConfig = object
    before = {name: sys.modules.get(name) for name in ("vllm", "vllm.config")}
    sys.modules.update({"vllm": types.ModuleType("vllm"), "vllm.config": stand_in})
    try:
        spec = importlib.util.spec_from_file_location("_vllm_ngram_proposer", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    finally:
        for name, old in before.items():
            if old is None:
                del sys.modules[name]
            else:
                sys.modules[name] = old
    return module.NgramProposer
