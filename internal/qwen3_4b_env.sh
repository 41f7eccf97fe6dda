# shellcheck shell=bash
# The environment of train_grpo_qwen3_4b_16die_gsm8k.sh, sourced by ray_start_npu.sh before Ray starts.
export VLLM_ENABLE_GRAPH_MODE=${VLLM_ENABLE_GRAPH_MODE:-0} # as published; the other runs have 1
# shellcheck source=internal/qwen3_npu_env.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/qwen3_npu_env.sh"

export TASK_QUEUE_ENABLE=${TASK_QUEUE_ENABLE:-2} # operators are handed to the device by a thread of their own
export CPU_AFFINITY_CONF=${CPU_AFFINITY_CONF:-1}

# jemalloc, where it is installed.
for library in /usr/lib64/libjemalloc.so.2 /usr/lib/*-linux-gnu/libjemalloc.so.2; do
    if [[ -f $library && ${LD_PRELOAD:-} != *jemalloc* ]]; then
        export LD_PRELOAD=$library${LD_PRELOAD:+:$LD_PRELOAD}
    fi
done
unset library
