#!/usr/bin/env bash
# DAPO on dapo-math-17k with Qwen3-235B-A22B: 8 nodes of 16 dies, env script internal/qwen3_235b_env.sh.
# Arguments are Hydra overrides, the last one wins.
# More settings are in internal/qwen3_235b.sh, any of them can be set here or in the environment as well.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=internal/qwen3_megatron.sh
source "$root/internal/qwen3_megatron.sh"

# Settings to change, here or from the environment.
NAME=dapo-qwen3-235b
TRAIN_BATCH=${TRAIN_BATCH:-128}           # prompts a step
RESPONSE_LENGTH=${RESPONSE_LENGTH:-34816} # tokens
TRAIN_FILE=${TRAIN_FILE:-$root/data/dapo-math/train.parquet}
TEST_FILE=${TEST_FILE:-$root/data/aime/test.parquet}
MAX_GEN_BATCHES=${MAX_GEN_BATCHES:-10}          # batches generated a step to fill it; 0: without limit
OVERLONG_PENALTY=${OVERLONG_PENALTY:-False}     # a falling reward over the last OVERLONG_BUFFER tokens of RESPONSE_LENGTH
OVERLONG_BUFFER=${OVERLONG_BUFFER:-16384}
# shellcheck source=internal/qwen3_235b.sh
source "$root/internal/qwen3_235b.sh"
GEN_BATCH=${GEN_BATCH:-$TRAIN_BATCH} # prompts generated at once
sharded_weights
dapo_args
train "$@"
