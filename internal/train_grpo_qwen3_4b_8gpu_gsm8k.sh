#!/usr/bin/env bash
# GRPO on GSM8K with Qwen3-4B: 8 GPUs, for comparison with the NPU run. Started without ray_start_npu.sh: veRL starts Ray.
# Arguments are Hydra overrides, the last one wins.
# Settings are in internal/qwen3_gsm8k.sh, any of them can be set here or in the environment as well.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)

NAME=grpo-qwen3-4b-gsm8k-gpu
# shellcheck source=internal/qwen3_gsm8k.sh
source "$root/internal/qwen3_gsm8k.sh"

args=(
    trainer.device=cuda
    trainer.n_gpus_per_node=8
)
train "$@"
