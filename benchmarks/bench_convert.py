"""How much memory `qwen3-rl convert` takes on a model with experts: `python benchmarks/bench_convert.py FOLDER [GB]`.

Makes a Qwen3Moe of GB (default 2) in bfloat16 below FOLDER, in two files, converts it, verifies it, and prints the
largest resident sizes of the processes, to be compared with 1.3 times the largest file. What it makes is removed.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path

IMPORTS = "import qwen3_rl.moe_overlap.convert"
COMMAND = "import sys; from qwen3_rl.cli import main; sys.exit(main(sys.argv[1:]))"
CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 4,
    "head_dim": 64, "intermediate_size": 2048, "moe_intermediate_size": 512, "num_experts": 64, "vocab_size": 32768,
    "max_position_embeddings": 4096,
}  # fmt: skip


def measure(*argv: str) -> tuple[float, float]:
    """(largest resident size in GB, seconds) of a Python process."""
    start = time.perf_counter()
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", *argv], os.environ)
    _, status, usage = os.wait4(pid, 0)
    if status:
        sys.exit(f"it ended with status {status}")
    return usage.ru_maxrss * 1024 / 1e9, time.perf_counter() - start


def make(name: str, gigabytes: float) -> None:
    """Writes the model."""
    import torch
    from safetensors.torch import save_file

    from qwen3_rl.moe_overlap.convert import read_layout

    folder = Path(name)
    folder.mkdir(parents=True)
    layers = max(2, round(gigabytes * 1e9 / 2 / (3 * 64 * 512 * 1024)))
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": layers}))
    tensors = read_layout(folder).tensors
    names = sorted(tensors)
    halves = {"model-00001-of-00002": names[::2], "model-00002-of-00002": names[1::2]}
    for file, part in halves.items():
        values = {name: torch.randn(tensors[name].shape).to(torch.bfloat16) for name in part}
        save_file(values, folder / f"{file}.safetensors")
    where = {name: f"{file}.safetensors" for file, part in halves.items() for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    hf, mcore = folder / "hf", folder / "mcore"
    # In a process of its own: a child starts with its parent's largest size.
    code = "import sys, bench_convert; bench_convert.make(sys.argv[1], float(sys.argv[2]))"
    os.chdir(Path(__file__).parent)
    measure(code, str(hf), sys.argv[2] if len(sys.argv) > 2 else "2")
    largest = max(file.stat().st_size for file in hf.glob("*.safetensors")) / 1e9
    try:
        base, _ = measure(IMPORTS)
        options = ["convert", "--hf-model-path", str(hf), "--output-path", str(mcore)]
        converting, seconds = measure(COMMAND, *options)
        verifying, verify_seconds = measure(COMMAND, *options, "--verify")
        print(f"largest file {largest:.2f} GB, 1.3 times that {1.3 * largest:.2f} GB; imports alone {base:.2f} GB")
        print(f"convert: {converting:.2f} GB, {seconds:.0f} s; --verify: {verifying:.2f} GB, {verify_seconds:.0f} s")
        sys.exit(max(converting, verifying) > 1.3 * largest)
    finally:
        shutil.rmtree(hf)
        shutil.rmtree(mcore, ignore_errors=True)


if __name__ == "__main__":
    main()
