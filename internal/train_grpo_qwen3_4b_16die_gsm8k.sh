#!/usr/bin/env bash
# GRPO on GSM8K with Qwen3-4B: one node of 16 dies, env script internal/qwen3_4b_env.sh.
# Arguments are Hydra overrides, the last one wins.
# More settings are in internal/qwen3_gsm8k.sh, any of them can be set here or in the environment as well.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)

# Settings to change, here or from the environment.
NAME=grpo-qwen3-4b-gsm8k
DRAFT_TOKENS=${DRAFT_TOKENS:-0} # SAM's drafts a request and step; 0: no speculation
# shellcheck source=internal/qwen3_gsm8k.sh
source "$root/internal/qwen3_gsm8k.sh"
# shellcheck source=internal/qwen3_rollout.sh
source "$root/internal/qwen3_rollout.sh"

args=(
    trainer.device=npu
    trainer.n_gpus_per_node="${NPUS_PER_NODE:-16}"
)
speculation
graphs
args+=("${rollout_args[@]}")
train "$@"
