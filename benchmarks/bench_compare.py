"""Reading a large console log: CPU seconds and peak memory, each in a process of its own.

    .venv/bin/python benchmarks/bench_compare.py [--megabytes 500]

Two logs are made in a temporary folder: "talk", what workers print around few steps (the usual case), and "steps",
nothing but step lines (the worst case for memory).
"""

import argparse
import gzip
import random
import subprocess
import sys
import tempfile
from pathlib import Path

MEASURE = """
import resource, sys, time
from pathlib import Path
start = time.process_time()
from qwen3_rl.report.compare import write
from qwen3_rl.report.comparison import compare
from qwen3_rl.report.sources import read_run
run = read_run(Path(sys.argv[1]))
seconds = time.process_time() - start
read_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
other = read_run(Path(sys.argv[2]))
other.label = "other"
write(compare([run, other]), Path(sys.argv[3]))
total = time.process_time() - start
peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(f"{len(run.steps.training()):7} steps: read {seconds:5.1f} s of CPU, {read_mb:4.0f} MB; "
      f"compared and all files written {total:5.1f} s of CPU, {peak_mb:4.0f} MB")
"""

NAMES = [
    "actor/entropy",
    "actor/pg_loss",
    "actor/kl_loss",
    "actor/pg_clipfrac",
    "actor/ppo_kl",
    "actor/grad_norm",
    "perf/mfu/actor",
    "perf/max_memory_allocated_gb",
    "actor/lr",
    "critic/score/mean",
    "critic/score/max",
    "critic/score/min",
    "critic/rewards/mean",
    "critic/rewards/max",
    "critic/rewards/min",
    "critic/advantages/mean",
    "critic/returns/mean",
    "response_length/mean",
    "response_length/max",
    "response_length/min",
    "response_length/clip_ratio",
    "prompt_length/mean",
    "prompt_length/max",
    "num_turns/mean",
    "timing_s/agent_loop/generate_sequences/mean",
    "timing_s/agent_loop/slowest/generate_sequences",
    "timing_s/gen",
    "timing_s/reward",
    "timing_s/old_log_prob",
    "timing_s/adv",
    "timing_s/update_actor",
    "timing_s/update_weights",
    "timing_s/step",
    "timing_per_token_ms/update_actor",
    "timing_per_token_ms/gen",
    "perf/total_num_tokens",
    "perf/time_per_step",
    "perf/throughput",
]
RAY = "\x1b[36m(TaskRunner pid=21332)\x1b[0m "
TALK = "\x1b[36m(WorkerDict pid={}, ip=10.0.0.{})\x1b[0m INFO:2026-11-30 12:43:05,522: offloading, memory {:.3f} GB\n"


def step_line(step: int, rng: random.Random) -> str:
    values = " - ".join(f"{name}:np.float64({rng.uniform(0.01, 9)!r})" for name in NAMES)
    return f"{RAY}step:{step} - training/global_step:{step} - {values}\n"


def write_log(path: Path, size: int, lines_between: int) -> None:
    rng = random.Random(1)
    talk = [TALK.format(rng.randint(1, 99999), rng.randint(1, 99), rng.random()) for _ in range(1000)]
    written = step = 0
    with path.open("w") as file:
        while written < size:
            step += 1
            text = step_line(step, rng) + "".join(rng.choices(talk, k=lines_between))
            written += file.write(text)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=500)
    size = parser.parse_args().megabytes * 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder, "small.log")
        write_log(small, 100_000, 10)
        for name, lines_between in (("talk", 5000), ("steps", 0)):
            log = Path(folder, f"{name}.log")
            write_log(log, size, lines_between)
            packed = log.with_name(f"{log.name}.gz")
            with log.open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as sink:
                while block := source.read(1 << 20):
                    sink.write(block)
            for path in (log, packed):
                command = [sys.executable, "-c", MEASURE, path, small, Path(folder, "out")]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                print(f"{path.name:12} {path.stat().st_size / 1e6:4.0f} MB {done.stdout.splitlines()[-1]}", flush=True)
                path.unlink()


if __name__ == "__main__":
    main()
