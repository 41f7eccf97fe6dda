"""Tiny Qwen3s as Hugging Face folders, and the harness's runs on them."""

import json
import os
import subprocess
import sys
from pathlib import Path

from patchset.project import find_project

PROJECT = find_project(None)
HARNESS = Path(__file__).parent / "harness.py"
COMMON = {"vocab_size": 128, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
COMMON |= {"num_hidden_layers": 3, "max_position_embeddings": 128, "rope_theta": 1e6}


def make_model(folder: Path, experts: int = 8, tied: bool = False, seed: int = 0, **config) -> Path:
    """A Qwen3Moe (a Qwen3 with ``experts=0``) in float32 with weights that differ everywhere, in several files."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

    if experts:
        moe = {"moe_intermediate_size": 48, "num_experts": experts, "num_experts_per_tok": 2, "norm_topk_prob": True}
        wanted = Qwen3MoeConfig(intermediate_size=96, tie_word_embeddings=tied, **(COMMON | moe | config))
        model = Qwen3MoeForCausalLM(wanted)
    else:
        model = Qwen3ForCausalLM(Qwen3Config(intermediate_size=96, tie_word_embeddings=tied, **(COMMON | config)))
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        matrix = parameter.ndim > 1
        values = torch.rand(parameter.shape, generator=generator)
        parameter.data.copy_((values - 0.5) * 0.4 if matrix else values + 0.5)
    model.save_pretrained(folder, max_shard_size="350KB")
    return folder


def run_worlds(folder: Path, hf: Path, runs: list[dict]) -> list[list[str]]:
    """The complaints of each run (see harness.py). What PYTHONPATH names comes before the checkouts."""
    job, results = folder / "job.json", folder / "results.json"
    job.write_text(json.dumps({"hf": str(hf), "runs": runs, "results": str(results)}))
    paths = [os.environ.get("PYTHONPATH", ""), str(PROJECT.path("megatron-core"))]
    environment = {**os.environ, "PYTHONPATH": ":".join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", HARNESS, job], env=environment, capture_output=True, text=True, timeout=600
    )
    assert results.is_file(), done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(results.read_text())


def convert(hf: Path, target: Path) -> Path:
    from qwen3_rl.cli import main

    assert main(["convert", "--hf-model-path", str(hf), "--output-path", str(target)]) == 0
    return target
