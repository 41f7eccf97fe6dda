#!/usr/bin/env bash
# GRPO on deepscaler with Qwen3-32B: 2 nodes of 16 dies, env script internal/qwen3_32b_env.sh.
# Arguments are Hydra overrides, the last one wins.
# More settings are in internal/qwen3_32b.sh, any of them can be set here or in the environment as well.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=internal/qwen3_megatron.sh
source "$root/internal/qwen3_megatron.sh"

# Settings to change, here or from the environment.
NAME=grpo-qwen3-32b
TRAIN_FILE=${TRAIN_FILE:-$root/data/deepscaler/train.parquet}
TEST_FILE=${TEST_FILE:-$root/data/aime/test.parquet}
REWARD=${REWARD:-pkg://qwen3_rl.rewards.math} # module with compute_score
# shellcheck source=internal/qwen3_32b.sh
source "$root/internal/qwen3_32b.sh"
grpo_args
train "$@"
