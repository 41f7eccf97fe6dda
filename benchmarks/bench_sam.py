"""SAM drafts beside vLLM's n-gram lookup and arctic-inference's suffix cache: acceptance, time, memory, in one run.

    python benchmarks/bench_sam.py --vllm DIR [--traces FILE]

Streams: Python is the standard library's own source by Python's tokenizer, English its manual (pydoc_data.topics) by
words and punctuation. Times are per request of a batch of 64, each request with its own stream of the length asked,
one new token and a draft of at most 5 a step; drafters take turns every 10 steps, so that a busy machine slows all
alike, and the median step counts. Set-up before the first step (adding text, compiling) is not in it. Appending is
timed apart, the fastest of 15 streams. arctic-inference appends to two trees, a local and a global one;
single streams are tried with both and with the local one alone.
"""

import argparse
import io
import os
import platform
import re
import subprocess
import sys
import sysconfig
import tokenize
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

from qwen3_rl.sam import SamDrafter
from qwen3_rl.sam.replay import makers, replay, replay_all
from qwen3_rl.sam.rivals import Arctic, Ngram, Sam, ngram_class
from qwen3_rl.sam.traces import TraceGroup, load_traces

PARTS = ("start", "append", "steps", "streams", "rollouts")
CONTEXTS = (1024, 8192, 32768)
FACTORS = (1.0, 4.0, 8.0, 16.0)
KS = (3, 5, 8)
BATCH, STEPS, TURN = 64, 80, 10


def python_words() -> Iterator[str]:
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        try:
            tokens = list(tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline))
        except (tokenize.TokenError, SyntaxError, UnicodeDecodeError):
            continue
        yield from (token.string for token in tokens if token.string.strip())


def english_words() -> Iterator[str]:
    from pydoc_data.topics import topics

    for name in sorted(topics):
        yield from re.findall(r"\w+|[^\w\s]", topics[name])


def stream(words: Iterator[str]) -> np.ndarray:
    ids: dict[str, int] = {}
    return np.array([ids.setdefault(word, len(ids)) for word in words], dtype=np.int32)


def pieces(text: np.ndarray, length: int, count: int) -> list[np.ndarray]:
    """`count` pieces spread evenly over the text; they overlap where it is shorter than all of them."""
    starts = np.linspace(0, len(text) - length, count).astype(int)
    return [text[start : start + length] for start in starts]


def accepted(text: np.ndarray, length: int, vllm_class) -> list[tuple[int, dict[str, float]]]:
    """(k, {drafter: accepted per step}) for single streams of `length` tokens, each with a fresh drafter."""
    count = {1024: 12, 8192: 3, 32768: 1}[length]
    streams = [[TraceGroup(piece[:8], [[piece[8:]]])] for piece in pieces(text, length, count)]
    rows = []
    for k in KS:
        make = {"sam": lambda k=k: Sam(k, "self"), "ngram": lambda k=k: Ngram(k, "self", vllm_class, 1, length + 1)}
        for factor in FACTORS:
            for trees, sharing in (("local", "self"), ("both", "group")):
                make[f"arctic f{factor:g} {trees}"] = lambda k=k, f=factor, s=sharing: Arctic(k, s, f)
        cells = {
            name: float(np.mean([replay(m, groups, "", "self", k, 1).accepted_per_step for groups in streams]))
            for name, m in make.items()
        }
        rows.append((k, cells))
    return rows


def step_times(text: np.ndarray, length: int, vllm_class) -> tuple[dict[str, float], float]:
    """({drafter: median us per request}, SAM's bytes per token) at a context of `length` tokens."""
    k, width = 5, length + STEPS
    texts = pieces(text, width, BATCH)
    drafters = {
        "sam": Sam(k, "group", max_bytes=1 << 30),
        "ngram": Ngram(k, "self", vllm_class, BATCH, width + 1),
        "arctic": Arctic(k, "group", 8.0),
    }
    reqs = list(range(BATCH))
    head = 64  # the prompt; the rest of the context is the response so far
    for drafter in drafters.values():
        for req, piece in zip(reqs, texts, strict=True):
            drafter.begin(req, piece[:head])
        for start in range(head, length, 1024):
            new = [piece[start : min(start + 1024, length)].tolist() for piece in texts]
            if isinstance(drafter, Ngram):
                drafter.note(reqs, new)
            else:
                drafter.step(reqs, new)
    times: dict[str, list[float]] = {name: [] for name in drafters}
    for start in range(length, width, TURN):
        steps = [[[int(piece[at])] for piece in texts] for at in range(start, start + TURN)]
        for name, drafter in drafters.items():
            for new in steps:
                if isinstance(drafter, Ngram):
                    drafter.note(reqs, new)
                begun = perf_counter()
                drafter.step(reqs, new)
                times[name].append((perf_counter() - begun) / BATCH * 1e6)
    memory = drafters["sam"].bytes_used() / (BATCH * width)
    return {name: median(values) for name, values in times.items()}, memory


def extend_times(text: np.ndarray, length: int) -> dict[str, float]:
    """{drafter: least ns a token} of appending `length` tokens to one request without drafts, memory used before."""
    times: dict[str, list[float]] = {"sam": [], "arctic": []}
    sam = SamDrafter(5, 1 << 26, history_tokens=0)
    for req, piece in enumerate(pieces(text, length + 8, 15)):
        sam.add_request(req, piece[:8])
        begun = perf_counter()
        sam.extend_batch([req], piece[8:], np.array([0, length]))
        times["sam"].append((perf_counter() - begun) / length * 1e9)
        sam.finish(req)
        arctic = Arctic(5, "group", 8.0)
        arctic.begin(req, piece[:8])
        begun = perf_counter()
        arctic._cache.add_active_response(req, piece[8:])
        times["arctic"].append((perf_counter() - begun) / length * 1e9)
    return {name: min(values) for name, values in times.items()}


def start_times() -> list[float]:
    """Seconds from a fresh interpreter's start to its first draft, three times; the first may compile."""
    use = "from qwen3_rl.sam import SamDrafter as D; d = D(5); d.add_request(0, [1, 2]); d.propose_lists([0], [[1]])"
    seconds = []
    for _ in range(3):
        begun = perf_counter()
        subprocess.run([sys.executable, "-c", use], check=True)
        seconds.append(perf_counter() - begun)
    return seconds


def report_appending(texts: dict[str, np.ndarray]) -> None:
    print("\nAppending one stream: ns a token, fastest of 15\n\n| stream | context | sam | arctic |\n|---|---|---|---|")
    for name, text in texts.items():
        for length in CONTEXTS:
            times = extend_times(text, length)
            print(f"| {name} | {length} | {times['sam']:.0f} | {times['arctic']:.0f} |", flush=True)


def report_steps(texts: dict[str, np.ndarray], vllm_class) -> None:
    print("\nOne new token and a draft of 5, batch 64: us per request\n")
    print("| stream | context | sam | ngram | arctic | sam/ngram | sam/arctic | sam bytes/token |")
    print("|---|---|---|---|---|---|---|---|")
    for name, text in texts.items():
        for length in CONTEXTS:
            t, memory = step_times(text, length, vllm_class)
            ratios = f"{t['sam'] / t['ngram']:.2f} | {t['sam'] / t['arctic']:.2f}"
            print(
                f"| {name} | {length} | {t['sam']:.2f} | {t['ngram']:.2f} | {t['arctic']:.2f} | {ratios}"
                f" | {memory:.0f} |",
                flush=True,
            )


def report_streams(texts: dict[str, np.ndarray], vllm_class) -> None:
    print("\nSingle streams: accepted drafts a step\n")
    print(
        "| stream | length | k | sam | ngram | arctic, best of factors and trees | sam/arctic |\n"
        "|---|---|---|---|---|---|---|"
    )
    for name, text in texts.items():
        for length in CONTEXTS:
            for k, cells in accepted(text, length, vllm_class):
                best = max((value, key) for key, value in cells.items() if key.startswith("arctic"))
                print(
                    f"| {name} | {length} | {k} | {cells['sam']:.3f} | {cells['ngram']:.3f} | {best[0]:.3f}"
                    f" ({best[1].removeprefix('arctic ')}) | {cells['sam'] / best[0]:.3f} |",
                    flush=True,
                )


def report_rollouts(traces: Path, vllm: str | None) -> None:
    groups = load_traces(traces)
    size = max(len(epoch) for group in groups for epoch in group.epochs)
    sharings = ("group", "epoch") if all(len(group.epochs) > 1 for group in groups) else ("group",)
    found = makers(("sam", "ngram", "arctic"), groups, FACTORS, vllm)
    found["ngram"] = (sharings, found["ngram"][1])
    results = replay_all(found, groups, ("group",), KS, (size, 1))
    if "epoch" in sharings:
        del found["ngram"]
        results += replay_all(found, groups, ("epoch",), KS, (size, 1))
    print(f"\nRollouts ({traces.name}): accepted drafts a step, us per request\n")
    print(
        "| sharing | wave | k | sam | ngram | arctic, best factor | sam/arctic"
        " | us sam | us ngram | us arctic | sam/arctic |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for sharing, wave, k in dict.fromkeys((r.sharing, r.stagger, r.k) for r in results):
        rows = {r.drafter: r for r in results if (r.sharing, r.stagger, r.k) == (sharing, wave, k)}
        sam, ngram = rows["sam"], rows.get("ngram")
        best = max((r for name, r in rows.items() if name.startswith("arctic")), key=lambda r: r.accepted_per_step)
        print(
            f"| {sharing} | {wave} | {k} | {sam.accepted_per_step:.3f}"
            f" | {f'{ngram.accepted_per_step:.3f}' if ngram else '-'}"
            f" | {best.accepted_per_step:.3f} ({best.drafter.removeprefix('arctic-')})"
            f" | {sam.accepted_per_step / best.accepted_per_step:.3f} | {sam.us_per_request:.2f}"
            f" | {f'{ngram.us_per_request:.2f}' if ngram else '-'} | {best.us_per_request:.2f}"
            f" | {sam.us_per_request / best.us_per_request:.2f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", default=os.environ.get("VLLM_PATH"), help="folder that holds vllm/ ($VLLM_PATH)")
    parser.add_argument("--traces", type=Path, help="recorded rollouts to replay as well")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to run (default: all)")
    args = parser.parse_args()
    vllm_class = ngram_class(args.vllm)
    if vllm_class is None:
        parser.error("vLLM is not installed: give --vllm")
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    texts = {"python": stream(python_words()), "english": stream(english_words())}
    if "start" in args.only:
        print("start to first draft, seconds:", *(f"{seconds:.2f}" for seconds in start_times()))
    if "append" in args.only:
        report_appending(texts)
    if "steps" in args.only:
        report_steps(texts, vllm_class)
    if "streams" in args.only:
        report_streams(texts, vllm_class)
    if "rollouts" in args.only and args.traces:
        report_rollouts(args.traces, args.vllm)


if __name__ == "__main__":
    main()
