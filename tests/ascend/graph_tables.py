"""What graph mode's settings become, and which graph each batch replays: v0.13.0 beside the patched tree.

    .venv-ascend/bin/python tests/ascend/graph_tables.py [--write]

prints the tables of docs/graph-mode.md, or writes them to tests/ascend/golden/. v0.13.0 is `patchset/base` of
frameworks/vllm-ascend, run in a process of its own. Everything is resolved by the engine's own code.
"""

import json
import os
import pickle
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from qwen3_rl.errors import UserError
from qwen3_rl.npugraph.keys import ONE_TOKEN, SWITCH
from qwen3_rl.npugraph.one_token import add_one_token_keys, set_query_len
from qwen3_rl.npugraph.settings import DRAFT_LIMIT, completed

GOLDEN = Path(__file__).parent / "golden"
ROOT = Path(__file__).parents[2]
TOKENS = 256  # max_num_batched_tokens
LENGTH = 128  # max_model_len


@dataclass(frozen=True)
class Given:
    """A rollout's settings as a user gives them. limit: the largest batch that is drafted for. padding: drafts as the
    patched proposer pads them."""

    name: str
    k: int = 0
    limit: int | None = None
    max_num_seqs: int = 16
    additional: dict = field(default_factory=lambda: {SWITCH: True})
    compilation: dict = field(default_factory=dict)
    enforce_eager: bool = False
    padding: bool = True

    def environment(self) -> dict[str, str]:
        return {} if self.limit is None else {DRAFT_LIMIT: str(self.limit)}

    def engine(self) -> dict:
        engine = {"additional_config": dict(self.additional), "compilation_config": dict(self.compilation)}
        if self.k:
            # Without SAM's gate: there are no times of steps to go by.
            sam = {"method": "sam", "num_speculative_tokens": self.k, "sam_config": {"gate": False}}
            engine["speculative_config"] = sam
        return engine


BOTH = {SWITCH: True, ONE_TOKEN: True}
CASES = [
    Given("eager", additional={}, enforce_eager=True),
    Given("graphs"),
    Given("graphs, SAM k=3", k=3),
    Given("graphs, SAM k=3, limit 4", k=3, limit=4),
    Given("graphs, SAM k=3, limit 4, one-token graphs", k=3, limit=4, additional=BOTH),
    Given("graphs, SAM k=5, max_num_seqs 32", k=5, max_num_seqs=32),
    Given("graphs, SAM k=2, max_num_seqs 5, one-token graphs", k=2, max_num_seqs=5, additional=BOTH),
    Given("graphs, SAM k=3, sizes 16,32,64", k=3, compilation={"cudagraph_capture_sizes": [16, 32, 64]}),
    Given("graphs, SAM k=3, FULL_DECODE_ONLY", k=3, compilation={"cudagraph_mode": "FULL_DECODE_ONLY"}),
    Given("graphs, SAM k=3, FULL", k=3, compilation={"cudagraph_mode": "FULL"}),
    Given("graphs, SAM k=3, PIECEWISE", k=3, compilation={"cudagraph_mode": "PIECEWISE"}),
    Given("graphs, SAM k=3, sizes 6,30", k=3, compilation={"cudagraph_capture_sizes": [6, 30]}),
    Given("graphs, compilation mode 0", compilation={"cudagraph_mode": "FULL_DECODE_ONLY", "mode": 0}),
    Given("graphs and eager", enforce_eager=True),
    Given("misspelt key", additional={"enable_npugraphex": True}),
    Given("key of 0.14", additional={"npugraph_ex_config": {"enable": True}}),
]

# The drafts' lengths by request, k standing for the largest; "prompt": one still computes 20 tokens of its prompt;
# "end": the first is too close to the model's length for k drafts; "off": above the limit, or
# SAM's gate has turned drafting off.
BATCHES = [
    ("prefill", "prompt", ["k", "k"]),
    ("all have k drafts", "", ["k"] * 4),
    ("one request, k drafts", "", ["k"]),
    ("ragged", "", ["k", 1, 0, "k"]),
    ("ragged, one at the end", "end", [0, "k", "k"]),
    ("nothing drafted", "", [0] * 4),
    ("drafting off, 3 requests", "off", [0] * 3),
    ("drafting off, 16 requests", "off", [0] * 16),
    ("more than the largest graph", "", ["k"] * 17),
]


def patched_tree() -> bool:
    from vllm_ascend.worker import model_runner_v1

    return hasattr(model_runner_v1, "set_query_len")


def resolve(given: Given, tokens: int = TOKENS, length: int = LENGTH):
    """The engine's configuration, with veRL's part before it. Raises UserError or ValueError where it is refused.

    tokens: max_num_batched_tokens. length: max_model_len.
    """
    from runner_lab import resolved_config

    engine = given.engine()
    rollout = {
        "enforce_eager": given.enforce_eager,
        "max_num_seqs": given.max_num_seqs,
        "max_num_batched_tokens": tokens,
    }
    if patched_tree():
        engine = completed(engine, rollout, given.environment())
    engine["compilation_config"].setdefault("cudagraph_mode", "FULL_AND_PIECEWISE")  # veRL's default
    with tempfile.TemporaryDirectory() as folder:
        return resolved_config(Path(folder), max_model_len=length, **rollout, **engine)


def flags(config) -> str:
    """npugraph_ex in the process of the platform, and in a worker that was spawned."""
    from vllm_ascend.ascend_config import clear_ascend_config, get_ascend_config, init_ascend_config

    here = get_ascend_config().enable_npugraph_ex
    clear_ascend_config()
    there = init_ascend_config(pickle.loads(pickle.dumps(config))).enable_npugraph_ex
    words = {False: "off", True: "on"}
    return words[here] if here == there else f"**{words[here]}, in workers {words[there]}**"


def dispatcher(config):
    """vLLM's dispatcher with the keys of this configuration, as the model runner makes them."""
    from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher

    compilation = config.compilation_config
    width = 1 + (config.speculative_config.num_speculative_tokens if config.speculative_config else 0)
    if compilation.cudagraph_mode.separate_routine() and compilation.cudagraph_mode.decode_mode().name == "FULL":
        compilation.adjust_cudagraph_sizes_for_spec_decode(width, 1)
    made = CudagraphDispatcher(config)
    made.initialize_cudagraph_keys(compilation.cudagraph_mode, width)
    if patched_tree():
        add_one_token_keys(made)
    return made


def runner_of(config):
    width = 1 + (config.speculative_config.num_speculative_tokens if config.speculative_config else 0)
    return SimpleNamespace(
        vllm_config=config,
        compilation_config=config.compilation_config,
        cudagraph_dispatcher=dispatcher(config),
        decode_token_per_req=width,
        uniform_decode_query_len=width,
    )


def scheduled(runner, drafts: list[int], situation: str) -> list[int]:
    """The tokens of each request in the next step, after the proposer has padded the drafts where it does that."""
    lengths = list(drafts)
    if patched_tree() and runner.decode_token_per_req > 1 and situation != "off":
        import numpy as np

        from qwen3_rl.sam.ascend import AscendSamProposer

        near_the_end = LENGTH - runner.decode_token_per_req
        texts = [near_the_end + 1 if situation == "end" and i == 0 else 8 for i in range(len(drafts))]
        runner.input_batch = SimpleNamespace(
            lora_id_to_lora_request={},
            num_tokens_no_spec=np.array(texts),
            token_ids_cpu=np.zeros((len(drafts), LENGTH), np.int32),
            spec_decode_unsupported_reqs=set(),
        )
        proposer = AscendSamProposer(runner.vllm_config, None, runner)
        if any(drafts) and proposer.graph_wants_padding(len(drafts)):
            lengths = [len(draft) for draft in proposer.filled([[7] * length for length in drafts])]
    return [1 + length for length in lengths] + [20] * (situation == "prompt")


def replayed(runner, tokens: list[int]) -> str:
    """The graph of a step, or eager: the choice that the model runner makes from its tokens."""
    if patched_tree():
        set_query_len(runner, tokens)
    uniform = max(tokens) == runner.uniform_decode_query_len and sum(tokens) == max(tokens) * len(tokens)
    try:
        mode, batch = runner.cudagraph_dispatcher.dispatch(sum(tokens), uniform_decode=uniform, has_lora=False)
    except AssertionError:
        return "**AssertionError**"
    if mode.name == "NONE":
        return "eager"
    requests = f" of {batch.num_reqs}" if batch.uniform else ""
    return f"{mode.name.lower()} {batch.num_tokens}{requests}"


def results() -> dict:
    """{"resolved": {case: text}, "dispatched": {case: {batch: text}}} of the tree that is imported."""
    resolved, dispatched = {}, {}
    for given in CASES:
        try:
            config = resolve(given)
        except (UserError, ValueError) as error:
            what = error.what if isinstance(error, UserError) else str(error)
            resolved[given.name] = f"refused: {what}"
            continue
        flag = flags(config)
        mode = config.compilation_config.cudagraph_mode.name
        runner = runner_of(config)
        sizes = config.compilation_config.cudagraph_capture_sizes if mode != "NONE" else []
        shown = ",".join(map(str, sizes)) or "none"
        resolved[given.name] = f"{mode}; npugraph_ex {flag}; sizes {shown}"
        dispatched[given.name] = {}
        for name, situation, drafts in BATCHES:
            lengths = [given.k if length == "k" else min(length, given.k) for length in drafts]
            if len(drafts) > given.max_num_seqs and name != "more than the largest graph":
                continue
            tokens = scheduled(runner, lengths, situation)
            shown = f"{len(tokens)} x {tokens[0]}" if len(set(tokens)) == 1 else "+".join(map(str, tokens))
            dispatched[given.name][name] = f"{shown}: {replayed(runner, tokens)}"
    return {"resolved": resolved, "dispatched": dispatched}


def results_of_base() -> dict:
    """`results` of v0.13.0, in a process that imports it."""
    frameworks = ROOT / os.environ.get("FRAMEWORKS_DIR", "frameworks")
    with tempfile.TemporaryDirectory() as folder:
        base = subprocess.run(
            ["git", "-C", frameworks / "vllm-ascend", "archive", "patchset/base"], check=True, capture_output=True
        ).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=base, check=True)
        done = subprocess.run(
            [sys.executable, __file__, "--json"],
            env={**os.environ, "PYTHONPATH": folder},
            check=True,
            capture_output=True,
            text=True,
        )
    return json.loads(done.stdout.splitlines()[-1])


def tables() -> dict[str, str]:
    """{file name: Markdown}."""
    before, after = results_of_base(), results()
    lines = ["| settings | v0.13.0 | patched |", "|---|---|---|"]
    for given in CASES:
        lines.append(f"| {given.name} | {before['resolved'][given.name]} | {after['resolved'][given.name]} |")
    parts = []
    for given in CASES:
        old, new = (result["dispatched"].get(given.name) for result in (before, after))
        if not new:
            continue
        parts += [f"\n## {given.name}", "| batch | v0.13.0 | patched |", "|---|---|---|"]
        parts += [f"| {name} | {old[name] if old else 'refused'} | {new[name]} |" for name in new]
    head = "Tokens of each request in the step: the graph that it replays, as tokens of requests, or eager.\n"
    return {"resolved.md": "\n".join(lines) + "\n", "dispatched.md": head + "\n".join(parts) + "\n"}


def main() -> None:
    if "--json" in sys.argv:
        print(json.dumps(results()))
        return
    for name, text in tables().items():
        if "--write" in sys.argv:
            GOLDEN.mkdir(exist_ok=True)
            (GOLDEN / name).write_text(text)
        else:
            print(text)


if __name__ == "__main__":
    main()
