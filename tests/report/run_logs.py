"""Hand-made logs of runs in the forms of veRL's generations, and the values that they hold."""

import json
import random
from pathlib import Path

RAY = "\x1b[36m(TaskRunner pid={pid}{ip})\x1b[0m "
WORKER = "\x1b[36m(WorkerDict pid=77, ip=10.0.0.2)\x1b[0m INFO:2026-11-30 12:43:05: step: offloaded, memory 3.1 GB\n"
# As pprint writes it: the last line ends in "}", those of inner dicts in "},".
SETTINGS = """{{'actor_rollout_ref': {{'model': {{'path': '{model}'}},
                       'rollout': {{'n': 8, 'name': 'vllm'}}}},
 'algorithm': {{'adv_estimator': 'grpo'}},
 'data': {{'max_prompt_length': 64,
          'max_response_length': 8,
          'train_batch_size': {batch}}},
 'trainer': {{'n_gpus_per_node': 2, 'nnodes': 1}}}}
"""


def values(step: int, pace: float = 1.0, seed: int = 0, batch: int = 32) -> dict[str, float]:
    """The metrics of a step under veRL 0.7's names. pace: how fast the machine is."""
    rng = random.Random(f"{seed} {step}")
    generation, update, rest = (rng.uniform(low, low + 1) / pace for low in (3, 1, 0.5))
    seconds = generation + update + rest
    prompt, response = 23.0, rng.uniform(6, 8)
    tokens = round(batch * 8 * (prompt + response))
    return {
        "training/global_step": step,
        "actor/entropy": rng.uniform(1, 5),
        "actor/pg_loss": rng.uniform(-0.1, 0.1),
        "actor/kl_loss": rng.uniform(0, 0.1),
        "actor/ppo_kl": rng.uniform(0, 0.1),
        "actor/grad_norm": rng.uniform(0.1, 1),
        "perf/mfu/actor": rng.uniform(0.1, 0.4),
        "critic/rewards/mean": rng.uniform(0.1, 1),
        "response_length/mean": response,
        "response_length/max": 8.0,
        "response_length/clip_ratio": 0.5,
        "prompt_length/mean": prompt,
        "rollout_corr/training_log_ppl": rng.uniform(1, 2),
        "timing_s/gen": generation,
        "timing_s/old_log_prob": rest,
        "timing_s/update_actor": update,
        "timing_s/step": seconds,
        "perf/total_num_tokens": tokens,
        "perf/time_per_step": seconds,
        "perf/throughput": tokens / seconds / 2,
    }


def older(data: dict[str, float]) -> dict[str, float]:
    """The same under the names of veRL 0.5."""
    renamed = {"timing_s/gen": "timing_s/generate_sequences", "actor/entropy": "actor/entropy_loss"}
    gone = ("rollout_corr/training_log_ppl",)
    return {renamed.get(name, name): value for name, value in data.items() if name not in gone}


def step_line(step: int, data: dict[str, float], pid: int = 11, ip: str = "", wrap: str = "{!r}") -> str:
    pairs = " - ".join(f"{name}:{wrap.format(value)}" for name, value in data.items())
    return f"{RAY.format(pid=pid, ip=ip)}step:{step} - {pairs}\n"


def settings(pid: int = 11, model: str = "/models/Qwen3-4B", batch: int = 32) -> str:
    text = SETTINGS.format(model=model, batch=batch)
    return "".join(f"{RAY.format(pid=pid, ip='')}{line}\n" for line in text.splitlines())


def log(steps, pace: float = 1.0, seed: int = 0, **line) -> str:
    """A plain log of veRL 0.7."""
    head = settings() + f"{RAY.format(pid=11, ip='')}Total training steps: {max(steps)}\n"
    return head + "".join(WORKER + step_line(step, values(step, pace, seed), **line) for step in steps)


def write_jsonl(path: Path, steps, pace: float = 1.0, seed: int = 0) -> Path:
    """As veRL's file logger writes it."""
    lines = (json.dumps({"step": step, "data": values(step, pace, seed)}) for step in steps)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path
