"""What only an NPU can prove of graph mode (docs/graph-mode.md): equal greedy tokens, replays, time, memory.

    python benchmarks/npu_graph_mode.py --model FOLDER --out report.json

Each way to run has an engine in a process of its own, answers the same prompts (token ids, four siblings of each) and
is compared with eager without drafts. A way that fails is reported with its error, and the others go on. On another
device the script runs too, and proves nothing.
"""

import argparse
import json
import os
import random
import subprocess
import sys
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter

from qwen3_rl.npugraph.keys import ONE_TOKEN, PAD_ATTENTION, STATIC_KERNEL, SWITCH
from qwen3_rl.npugraph.settings import DRAFT_LIMIT, completed

ON = {SWITCH: True}
FULL = {"cudagraph_mode": "FULL"}
# name: (additional_config, compilation_config, drafts?, is the gate half the batch?)
WAYS = {
    "eager": ({}, {}, False, False),
    "graphs": (ON, {}, False, False),
    "eager, SAM": ({}, {}, True, False),
    "graphs, SAM": (ON, {}, True, False),
    "graphs, SAM, gate": (ON, {}, True, True),
    "graphs, SAM, gate, one-token graphs": ({**ON, ONE_TOKEN: True}, {}, True, True),
    "graphs, SAM, static kernels": ({**ON, STATIC_KERNEL: True}, {}, True, False),
    "graphs, SAM, FULL": (ON, FULL, True, False),
    "graphs, SAM, FULL, padded attention": ({**ON, PAD_ATTENTION: True}, FULL, True, False),
}


def answer(name: str, args: argparse.Namespace) -> dict:
    """One way's tokens, seconds, dispatched graphs and memory."""
    additional, compilation, drafts, gated = WAYS[name]
    if gated:
        os.environ[DRAFT_LIMIT] = str(args.batch // 2)
    os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1")
    engine: dict = {"additional_config": additional, "compilation_config": compilation}
    if drafts:
        sam = {"method": "sam", "num_speculative_tokens": args.k, "sam_config": {"gate": False}}
        engine["speculative_config"] = sam
    rollout = {"enforce_eager": not additional, "max_num_seqs": args.batch, "max_num_batched_tokens": 4096}
    engine = completed(engine, rollout)

    from vllm import LLM, SamplingParams
    from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher

    chosen: Counter = Counter()
    dispatch = CudagraphDispatcher.dispatch

    def counted(self, *positional, **named):
        mode, batch = dispatch(self, *positional, **named)
        chosen[mode.name if batch.num_reqs is None else f"{mode.name} {batch.num_tokens} of {batch.num_reqs}"] += 1
        return mode, batch

    CudagraphDispatcher.dispatch = counted
    began = perf_counter()
    llm = LLM(
        args.model, skip_tokenizer_init=True, max_model_len=2048, enable_prefix_caching=False, **rollout, **engine
    )
    started = perf_counter() - began
    config = llm.llm_engine.vllm_config.compilation_config
    dice = random.Random(1)
    texts = [[dice.randrange(100) for _ in range(64)] for _ in range(-(-args.batch // 4))]
    prompts = [{"prompt_token_ids": texts[i // 4]} for i in range(args.batch)]
    params = SamplingParams(temperature=0, max_tokens=args.tokens, ignore_eos=True, detokenize=False)
    llm.generate(prompts, params, use_tqdm=False)
    chosen.clear()
    began = perf_counter()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    seconds, dispatched = perf_counter() - began, dict(chosen)
    gaps = []
    if name == "eager":
        params.logprobs = 2
        for output in llm.generate(prompts, params, use_tqdm=False):
            best = [sorted((p.logprob for p in found.values()), reverse=True) for found in output.outputs[0].logprobs]
            gaps.append([round(first - second, 4) for first, second, *_ in best])
    return {
        "seconds": round(seconds, 3),
        "seconds_to_start": round(started, 1),
        "mode": config.cudagraph_mode.name,
        "sizes": config.cudagraph_capture_sizes,
        "dispatched": dispatched,
        "free_bytes": free_memory(),
        "tokens": [list(output.outputs[0].token_ids) for output in outputs],
        "gaps": gaps,
    }


def free_memory() -> int | None:
    import torch

    return torch.npu.mem_get_info()[0] if hasattr(torch, "npu") and torch.npu.is_available() else None


def compared(result: dict, eager: dict) -> dict:
    """How many responses equal eager's; where the others differ first, with the gap between eager's two best logits
    there (log-probabilities): a small one is a tie that rounding decides. The tokens themselves are left out."""
    tokens, _ = result.pop("tokens"), result.pop("gaps")
    differences = []
    for mine, theirs, gaps in zip(tokens, eager["tokens"], eager["gaps"], strict=True):
        if mine != theirs:
            position = next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b)
            differences.append({"position": position, "gap": gaps[position]})
    return {"equal": len(tokens) - len(differences), "of": len(tokens), "differences": differences, **result}


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a Hugging Face folder")
    parser.add_argument("--out", type=Path, default=Path("graph-mode-report.json"))
    parser.add_argument("--batch", type=int, default=16, help="requests")
    parser.add_argument("--tokens", type=int, default=256, help="of each response")
    parser.add_argument("--k", type=int, default=3, help="draft tokens")
    parser.add_argument("--only", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        print("\n" + json.dumps(answer(args.only, args)))
        return 0
    packages = ("torch", "torch_npu", "vllm", "vllm_ascend", "transformers")
    report = {"versions": {name: installed(name) for name in packages}, "arguments": sys.argv[1:], "ways": {}}
    eager = None
    for name in WAYS:
        done = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--only", name], capture_output=True, text=True)
        if done.returncode:
            report["ways"][name] = {"error": done.stderr[-3000:]}
        else:
            result = json.loads(done.stdout.splitlines()[-1])
            eager = eager or dict(result)
            report["ways"][name] = compared(result, eager)
        shown = {key: value for key, value in report["ways"][name].items() if key != "error"} or "failed"
        print(f"{name}: {shown}", flush=True)
        if eager is None:
            break
        args.out.write_text(json.dumps(report, indent=1))
    print(f"report: {args.out}")
    return int(any("error" in way for way in report["ways"].values()))


if __name__ == "__main__":
    sys.exit(main())
