# shellcheck shell=bash
# The environment of internal/train_grpo_qwen3_tiny_cpu.sh, sourced by ray_start_npu.sh before Ray starts: Ray's workers
# inherit it from there.

# One logical NPU, and as many logical CPUs as there are actors.
export NPUS_PER_NODE=1
export RAY_NUM_CPUS=8
export RAY_OBJECT_STORE_BYTES=${RAY_OBJECT_STORE_BYTES:-300000000}

# vLLM on a CPU: one GiB of KV cache; threads are left to the scheduler, since trainer and rollout share the cores.
export VLLM_CPU_KVCACHE_SPACE=1
export VLLM_CPU_OMP_THREADS_BIND=nobind
export OMP_NUM_THREADS=1
export TORCHDYNAMO_DISABLE=1

# Everything stays on this machine (or, with NNODES, on the interface that the launcher names): no hub, no usage reports.
if [[ ${NNODES:-1} =~ ^0*1$ ]]; then
    export GLOO_SOCKET_IFNAME=lo
    export VLLM_HOST_IP=127.0.0.1
fi
export HF_HUB_OFFLINE=1
export TRANSFORMERS_OFFLINE=1
export RAY_USAGE_STATS_ENABLED=0
export VLLM_NO_USAGE_STATS=1
