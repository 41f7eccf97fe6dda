# shellcheck shell=bash
# What the Qwen3 runs on Ascend NPUs have in common, sourced by their env scripts.

export NPUS_PER_NODE=${NPUS_PER_NODE:-16} # dies of a node
export RAY_PORT=${RAY_PORT:-29444}

# Collectives: a step of long responses keeps the others waiting for more than HCCL's own 120 s.
export HCCL_CONNECT_TIMEOUT=${HCCL_CONNECT_TIMEOUT:-7200}
export HCCL_EXEC_TIMEOUT=${HCCL_EXEC_TIMEOUT:-7200}
export HCCL_IF_BASE_PORT=${HCCL_IF_BASE_PORT:-64021}
export HCCL_BUFFSIZE=${HCCL_BUFFSIZE:-300} # MB

# Rollout: the number of requests above which SAM does not draft, -1 leaves that to what it measures (the published runs
# have 32, with which larger batches would run without graphs here: docs/graph-mode.md); 1 takes npugraph_ex, 0 runs eager.
export VLLM_SPECULATIVE_BATCH_SIZE_THRE=${VLLM_SPECULATIVE_BATCH_SIZE_THRE:--1}
export VLLM_ENABLE_GRAPH_MODE=${VLLM_ENABLE_GRAPH_MODE:-1}

# The response cap of the length-aware sampler; only with that sampler.
export VLLM_ROLLOUT_EARLY_STOP_ENABLE=${VLLM_ROLLOUT_EARLY_STOP_ENABLE:-0}
export VLLM_ROLLOUT_EARLY_STOP_FACTOR=${VLLM_ROLLOUT_EARLY_STOP_FACTOR:-2.0}
export VLLM_ROLLOUT_EARLY_STOP_MIN_TOKENS=${VLLM_ROLLOUT_EARLY_STOP_MIN_TOKENS:-10000}

export RAY_USAGE_STATS_ENABLED=0
export VLLM_NO_USAGE_STATS=1
