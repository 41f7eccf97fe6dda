"""The share of decode steps that would run eagerly in a rollout, replayed through the real scheduler and dispatcher.

    .venv-ascend/bin/python tests/ascend/eager_share.py TRACES.json

Requests are admitted by vLLM's scheduler, drafted for by SAM as in vllm-ascend's model runner, and their drafts
compared with the recorded responses. A decode step is one that computes no prompt. The model's length
is that of the longest recorded text. The form of a trace file is in docs/sam.md.
"""

import os
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from graph_tables import BOTH, Given, replayed, resolve, runner_of
from runner_lab import scheduler
from vllm.sampling_params import SamplingParams
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request

from qwen3_rl.npugraph.settings import DRAFT_LIMIT
from qwen3_rl.sam.ascend import AscendSamProposer
from qwen3_rl.sam.traces import TraceGroup, load_traces

EOS = 1 << 20  # no token of any trace


@dataclass(frozen=True)
class Share:
    """Decode steps, those of them that run eagerly, and why: {"one token": n, "ragged": n}."""

    decode_steps: int
    eager: dict[str, int]

    @property
    def percent(self) -> float:
        return 100 * sum(self.eager.values()) / max(self.decode_steps, 1)


class Batch(SimpleNamespace):
    """What the proposer reads of the runner's batch: one row for each request that was scheduled."""

    def __init__(self, states: list["State"], width: int):
        super().__init__(
            req_ids=[state.name for state in states],
            token_ids_cpu=np.zeros((len(states), width), np.int32),
            num_tokens_no_spec=np.array([len(state.tokens) for state in states]),
            num_prompt_tokens=np.array([state.prompt for state in states]),
            spec_decode_unsupported_reqs=set(),
            lora_id_to_lora_request={},
        )
        for row, state in zip(self.token_ids_cpu, states, strict=True):
            row[: len(state.tokens)] = state.tokens


@dataclass(eq=False)
class State:
    """A request: what it has so far, and what it will still say."""

    name: str
    tokens: list[int]
    prompt: int
    rest: list[int]

    def sample(self, drafts: list[int]) -> list[int]:
        """The recorded tokens that a step emits: accepted drafts and one more."""
        right = 0
        while right < min(len(drafts), len(self.rest) - 1) and drafts[right] == self.rest[right]:
            right += 1
        new, self.rest = self.rest[: right + 1], self.rest[right + 1 :]
        self.tokens += new
        return new


def replay(how: Given, groups: list[TraceGroup]) -> Share:
    os.environ.pop(DRAFT_LIMIT, None)
    os.environ.update(how.environment())
    length = max(len(g.prompt) + len(r) for g in groups for r in g.epochs[0]) + 2
    config = resolve(how, 2048, length)
    runner = runner_of(config)
    runner.requests = {}
    proposer = AscendSamProposer(config, None, runner)
    if not how.padding:
        proposer.graph_wants_padding = lambda requests: False
    server = scheduler(config, blocks=how.max_num_seqs * (length // 16 + 1))
    states = {}
    for number, (group, response) in enumerate((g, r) for g in groups for r in g.epochs[0]):
        name, prompt = str(number), group.prompt.tolist()
        states[name] = State(name, prompt, len(prompt), [*response.tolist(), EOS])
        params = SamplingParams(max_tokens=length)
        server.add_request(Request(name, list(prompt), params, pooling_params=None, eos_token_id=EOS))
        runner.requests[name] = SimpleNamespace(sampling_params=params)
    steps, eager = 0, Counter()
    while server.has_unfinished_requests():
        out = server.schedule()
        tokens = out.num_scheduled_tokens
        live = [states[name] for name in tokens]
        before = {s.name: server.requests[s.name].num_computed_tokens - tokens[s.name] for s in live}
        if all(before[state.name] >= state.prompt for state in live):
            steps += 1
            if replayed(runner, list(tokens.values())) == "eager":
                eager["one token" if max(tokens.values()) == 1 else "ragged"] += 1
        sampled = []
        for state in live:
            whole = before[state.name] + tokens[state.name] >= len(state.tokens)
            sampled.append(state.sample(out.scheduled_spec_decode_tokens.get(state.name, [])) if whole else [])
        names = [state.name for state in live]
        output = ModelRunnerOutput(names, {n: i for i, n in enumerate(names)}, sampled, None, {}, [])
        runner.input_batch = Batch(live, length)
        drafts = proposer.generate_token_ids(sampled, None, out)
        server.update_from_output(out, output)
        server.update_draft_token_ids(DraftTokenIds(names, drafts))
        for state in live:
            if not state.rest:
                del runner.requests[state.name]
    return Share(steps, dict(eager))


def ways(max_num_seqs: int, limit: int | None) -> list[Given]:
    common = {"k": 3, "max_num_seqs": max_num_seqs, "limit": limit}
    return [
        Given("v0.13.0", padding=False, **common),
        Given("patched", **common),
        Given("patched, one-token graphs", additional=BOTH, **common),
    ]


def main() -> None:
    groups = load_traces(Path(sys.argv[1]))
    print("| requests at once | limit | | decode steps | eager | why |")
    print("|---|---|---|---|---|---|")
    for max_num_seqs, limit in ((64, None), (64, 32), (64, 8), (16, None), (16, 8), (4, None)):
        for how in ways(max_num_seqs, limit):
            share = replay(how, groups)
            why = ", ".join(f"{name} {count}" for name, count in sorted(share.eager.items()))
            cells = (max_num_seqs, limit or "none", how.name, share.decode_steps, f"{share.percent:.1f} %", why)
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
