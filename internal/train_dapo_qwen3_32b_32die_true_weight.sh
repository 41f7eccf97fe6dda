#!/usr/bin/env bash
# DAPO on dapo-math-17k with Qwen3-32B: 2 nodes of 16 dies, env script internal/qwen3_32b_env.sh.
# Arguments are Hydra overrides, the last one wins.
# More settings are in internal/qwen3_32b.sh, any of them can be set here or in the environment as well.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=internal/qwen3_megatron.sh
source "$root/internal/qwen3_megatron.sh"

# Settings to change, here or from the environment.
NAME=dapo-qwen3-32b
TRAIN_FILE=${TRAIN_FILE:-$root/data/dapo-math/train.parquet}
TEST_FILE=${TEST_FILE:-$root/data/aime/test.parquet}
MAX_GEN_BATCHES=${MAX_GEN_BATCHES:-10}          # batches generated a step to fill it; 0: without limit
OVERLONG_PENALTY=${OVERLONG_PENALTY:-False}     # a falling reward over the last OVERLONG_BUFFER tokens of RESPONSE_LENGTH
OVERLONG_BUFFER=${OVERLONG_BUFFER:-16384}
# shellcheck source=internal/qwen3_32b.sh
source "$root/internal/qwen3_32b.sh"
GEN_BATCH=${GEN_BATCH:-$TRAIN_BATCH} # prompts generated at once
dapo_args
train "$@"
