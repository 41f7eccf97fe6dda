"""The length-aware sampler: its own cost, simulated runs, and real ones on a CPU.

    python benchmarks/bench_length_aware.py [--only cost simulate train]

cost: a million rows, 16 siblings, batches of 512; CPU time. simulate: 32 replicas x 128 slots, epoch 3 of drawn
lengths, the siblings' sigma from 0.1 to 0.5, equal for all rows or another for each. train: the patched trainer with
vLLM on 96 rows of countdown (answers of 8 to 94 tokens, a tenth of the characters repeated, less reward for every
repeat), batches of 16, 4 siblings, 4 epochs, the same seed: veRL's shuffle, the sampler, and the sampler with its
batches longest first.
"""

import argparse
import json
import os
import platform
import subprocess
import tempfile
import tracemalloc
from pathlib import Path
from statistics import fmean, median, stdev
from time import process_time

import numpy as np

from qwen3_rl.cli import main as qwen3_rl
from qwen3_rl.length_aware.order import OrderSettings, epoch_order
from qwen3_rl.length_aware.simulate import draw_lengths, simulate
from qwen3_rl.length_aware.statistics import LengthStatistics, group_moments

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("cost", "simulate", "train")
SAMPLER = [
    "data.sampler.class_path=pkg://verl.experimental.dataset.length_bucket_sampler",
    "data.sampler.class_name=LengthAwareEpochSampler",
    "+data.sampler.bucket_size=4",
]
RUNS = {
    "shuffle": [],
    "sampler": SAMPLER,
    "longest first": [*SAMPLER, "+data.sampler.shuffle_batch_blocks=False"],
}
EPOCHS, STEPS_AN_EPOCH = 4, 6


def cost() -> None:
    rows, batch, siblings = 1_000_000, 512, 16
    rng = np.random.default_rng(0)
    statistics = LengthStatistics(rows, 0.7)
    ids = np.repeat(np.arange(rows), 2)
    statistics.update(group_moments(ids, np.exp(rng.normal(8, 1, len(ids))).astype(int)))
    orders, updates = [], []
    for epoch in range(5):
        begun = process_time()
        order = epoch_order(statistics, OrderSettings(batch), epoch)
        orders.append(process_time() - begun)
        lengths = np.exp(rng.normal(8, 1, batch * siblings)).astype(int)
        begun = process_time()
        moments = group_moments(np.repeat(order[:batch], siblings), lengths)
        statistics.longest(moments.rows)
        statistics.update(moments, 30_000)
        updates.append(process_time() - begun)
    tracemalloc.start()
    fresh = LengthStatistics(rows, 0.7)
    fresh.load(statistics.state())
    order = epoch_order(fresh, OrderSettings(batch), 1)
    held, peak = tracemalloc.get_traced_memory()
    print(f"{rows:,} rows: order {median(orders):.2f} s, update {median(updates) * 1e3:.1f} ms,", end=" ")
    print(f"{held / rows:.0f} bytes a row held, {peak / rows:.0f} at most")


def simulated() -> None:
    print("\n| lengths | siblings' sigma | saved by naive EMA | by the sampler | by the oracle | sampler of oracle |")
    print("|---|---|---|---|---|---|")
    for kind in ("lognormal", "bimodal"):
        for noise, uneven in ((0.1, False), (0.3, False), (0.5, False), (0.3, True), (0.5, True)):
            lengths = draw_lengths(kind, 16500, 3, 16, noise, uneven, 0.1, 32768, seed=0)
            results, _ = simulate(lengths, OrderSettings(512, shuffle_first_epoch=True), 0.7, 32, 128)
            last = {r.policy: r for r in results if r.epoch == 3}
            sigma = f"0 to {2 * noise:g}" if uneven else f"{noise:g}"
            cells = " | ".join(f"{last[name].gain:.1%}" for name in ("naive EMA", "sampler", "oracle"))
            print(f"| {kind} | {sigma} | {cells} | {last['sampler'].share_of_oracle:.0%} |", flush=True)


def train(folder: Path, name: str, overrides: list[str]) -> list[dict]:
    """One run through the launcher; its steps' metrics."""
    run = folder / name.replace(" ", "-")
    settings = {
        "PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}",
        "MODEL_PATH": str(folder / "model"),
        "DATA_DIR": str(folder / "data"),
        "OUTPUTS_DIR": str(folder),
        "RUN_NAME": run.name,
        "STEPS": str(EPOCHS * STEPS_AN_EPOCH),
        "TRAIN_BATCH": "16",
        "RESPONSES": "4",
        "LEARNING_RATE": "3e-3",
    }
    scripts = [ROOT / "internal" / script for script in ("train_grpo_qwen3_tiny_cpu.sh", "qwen3_tiny_cpu_env.sh")]
    fixed = [
        "data.max_response_length=120",
        "reward.custom_reward_function.path=pkg://qwen3_rl.data.countdown",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=32",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32",
    ]
    with (folder / f"{run.name}.log").open("w") as log:
        subprocess.run(
            ["bash", ROOT / "ray_start_npu.sh", *scripts, *fixed, *overrides],
            env={**os.environ, **settings},
            stdout=log,
            stderr=subprocess.STDOUT,
            check=True,
        )
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def trained(folder: Path) -> None:
    qwen3_rl(["tiny-model", "--to", str(folder / "model"), "--countdown", "0.1"])
    qwen3_rl(["data", "countdown", "--to", str(folder / "data"), "--train-rows", str(16 * STEPS_AN_EPOCH)])
    print("\n| run | bubble, epochs 1 to 4 | all | reward, epochs 1 to 4 | gradient norm, epochs 2 to 4: mean, sd |")
    print("|---|---|---|---|---|")
    for name, overrides in RUNS.items():
        steps = train(folder, name, overrides)

        def by_epoch(key: str, steps: list[dict] = steps) -> str:
            values = [step[key] for step in steps]
            cut = [values[first : first + STEPS_AN_EPOCH] for first in range(0, len(values), STEPS_AN_EPOCH)]
            return " ".join(f"{fmean(part):.3f}" for part in cut)

        norms = [step["actor/grad_norm"] for step in steps[STEPS_AN_EPOCH:]]
        bubble = fmean(step["rollout/bubble_ratio"] for step in steps)
        print(
            f"| {name} | {by_epoch('rollout/bubble_ratio')} | {bubble:.3f} | {by_epoch('critic/rewards/mean')}"
            f" | {fmean(norms):.3f} {stdev(norms):.3f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to run (default: all)")
    parser.add_argument("--folder", type=Path, help="for the runs of train (default: a temporary one)")
    args = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    if "cost" in args.only:
        cost()
    if "simulate" in args.only:
        simulated()
    if "train" in args.only:
        with tempfile.TemporaryDirectory() as temporary:
            trained(args.folder or Path(temporary))


if __name__ == "__main__":
    main()
