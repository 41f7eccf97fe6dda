#!/usr/bin/env bash
# GRPO on GSM8K with Qwen3-4B: one node of 16 dies, env script internal/qwen3_4b_env.sh.
# Arguments are Hydra overrides, the last one wins.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=internal/qwen3_gsm8k.sh
source "$root/internal/qwen3_gsm8k.sh"
# shellcheck source=internal/qwen3_rollout.sh
source "$root/internal/qwen3_rollout.sh"

# Settings to change, here or from the environment.
NAME=grpo-qwen3-4b-gsm8k
MODEL_PATH=${MODEL_PATH:-$root/models/Qwen3-4B} # a Hugging Face folder
DATA_DIR=${DATA_DIR:-$root/data/gsm8k}          # train.parquet and test.parquet
TRAIN_BATCH=${TRAIN_BATCH:-512}                 # prompts a step
MINI_BATCH=${MINI_BATCH:-256}                   # prompts an update
RESPONSES=${RESPONSES:-5}                       # responses a prompt (the group)
LEARNING_RATE=${LEARNING_RATE:-5e-7}
EPOCHS=${EPOCHS:-15}
STEPS=${STEPS:-null}                          # training steps; null: all of EPOCHS
TEST_EVERY=${TEST_EVERY:-5}                   # steps
DRAFT_TOKENS=${DRAFT_TOKENS:-0}               # SAM's drafts a request and step; 0: no speculation
ROLLOUT_TP=${ROLLOUT_TP:-2}
MEMORY_UTILIZATION=${MEMORY_UTILIZATION:-0.9} # of a device, for weights and KV cache
RUN_FOLDER=${RUN_FOLDER:-$root/outputs/$NAME}  # ray_start_npu.sh sets it

args=(
    trainer.device=npu
    trainer.n_gpus_per_node="${NPUS_PER_NODE:-16}"
)
speculation
graphs
args+=("${rollout_args[@]}")
train "$@"
