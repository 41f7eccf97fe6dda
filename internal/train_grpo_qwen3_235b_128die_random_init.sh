#!/usr/bin/env bash
# GRPO with Qwen3-235B-A22B from random weights, for trying speed and memory: 8 nodes of 16 dies, env script internal/qwen3_235b_env.sh.
# MODEL_PATH needs no weights: config.json and the tokenizer are enough.
# Arguments are Hydra overrides, the last one wins.
# More settings are in internal/qwen3_235b.sh, any of them can be set here or in the environment as well.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=internal/qwen3_megatron.sh
source "$root/internal/qwen3_megatron.sh"

# Settings to change, here or from the environment.
NAME=grpo-qwen3-235b-random
TRAIN_FILE=${TRAIN_FILE:-$root/data/deepscaler/train.parquet}
TEST_FILE=${TEST_FILE:-$root/data/aime/test.parquet}
REWARD=${REWARD:-pkg://qwen3_rl.rewards.math} # module with compute_score
# shellcheck source=internal/qwen3_235b.sh
source "$root/internal/qwen3_235b.sh"
args+=(
    actor_rollout_ref.actor.load_weight=False
    actor_rollout_ref.ref.load_weight=False
)
grpo_args
train "$@"
