"""Generation time of real GRPO steps with a long tail, SAM on and off, the runs in turns.

    python benchmarks/bench_rollout.py [--pairs N]

The patched trainer with vLLM on bench_length_aware.py's job: 24 steps of 64 responses, 8 to 94 tokens and longer where
the model repeats itself, each prompt four times. The first epoch's steps are not counted.
"""

import argparse
import os
import tempfile
from pathlib import Path
from statistics import fmean, median

from bench_length_aware import STEPS_AN_EPOCH, train

from qwen3_rl.cli import main as qwen3_rl

ACCEPTED = "rollout/spec_decode/mean_accepted"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    pairs = parser.parse_args().pairs
    print("| run | generation, s a step: median, mean | response tokens a second | longest response | accepted |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        qwen3_rl(["tiny-model", "--to", str(folder / "model"), "--countdown", "0.1"])
        qwen3_rl(["data", "countdown", "--to", str(folder / "data"), "--train-rows", str(16 * STEPS_AN_EPOCH)])
        ratios = []
        for pair in range(pairs):
            seconds = {}
            for draft_tokens in (0, 3) if pair % 2 else (3, 0):
                os.environ["DRAFT_TOKENS"] = str(draft_tokens)
                steps = train(folder, f"{pair}-{draft_tokens}", [])[STEPS_AN_EPOCH:]
                times = [step["timing_s/gen"] for step in steps]
                tokens = sum(64 * step["response_length/mean"] for step in steps)
                longest = fmean(step["response_length/max"] for step in steps)
                accepted = fmean(step.get(ACCEPTED, 0) for step in steps)
                seconds[draft_tokens] = median(times)
                print(
                    f"| {'SAM' if draft_tokens else 'off'} | {median(times):.2f}, {fmean(times):.2f}"
                    f" | {tokens / sum(times):.0f} | {longest:.0f} | {accepted:.2f} |",
                    flush=True,
                )
            ratios.append(seconds[0] / seconds[3])
    print(f"\noff / SAM, medians of each pair: {' '.join(f'{ratio:.2f}' for ratio in ratios)}")


if __name__ == "__main__":
    main()
