# shellcheck shell=bash
# The environment of the Qwen3-235B-A22B runs, sourced by ray_start_npu.sh before Ray starts: Ray's workers inherit it.
# shellcheck source=internal/qwen3_npu_env.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/qwen3_npu_env.sh"

export USE_ALLTOALL_OVERLAP=${USE_ALLTOALL_OVERLAP:-1} # training: all-to-all behind computation

# Rollout: experts over all dies of a replica, which are the tensor parallel size times this.
export VLLM_ENABLE_EXPERT_PARALLEL=${VLLM_ENABLE_EXPERT_PARALLEL:-1}
export VLLM_DP_SIZE=${VLLM_DP_SIZE:-4}
