#!/usr/bin/env bash
# GRPO of Qwen3-32B with the length-aware sampler (docs/length-aware.md): 1 node of 16 dies, env script
# internal/qwen3_32b_env.sh. Arguments are Hydra overrides, the last one wins.
# More settings are in internal/qwen3_32b.sh, any of them can be set here or in the environment as well.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=internal/qwen3_megatron.sh
source "$root/internal/qwen3_megatron.sh"

# What must be given.
missing=()
for name in MODEL_PATH DISTCP_PATH TRAIN_FILE TEST_FILE; do
    [[ -n ${!name:-} ]] || missing+=("$name")
done
if ((${#missing[@]})); then
    printf 'error: not set: %s\n next: export MODEL_PATH (Hugging Face folder), DISTCP_PATH (its Megatron dist checkpoint), TRAIN_FILE and TEST_FILE (parquet)\n' "${missing[*]}" >&2
    exit 2
fi

# Settings to change, here or from the environment.
NAME=resampler
NNODES=${NNODES:-1}
EPOCHS=${EPOCHS:-4}
REWARD=${REWARD:-pkg://qwen3_rl.rewards.math}                         # module with compute_score
VLLM_EAGER_BASELINE_NO_RESAMPLE=${VLLM_EAGER_BASELINE_NO_RESAMPLE:-0} # 1: veRL's shuffle instead, else the same run
SAVE_CKPT_ENABLE=${SAVE_CKPT_ENABLE:-0}                               # 1: a checkpoint every SAVE_FREQ steps
[[ $SAVE_CKPT_ENABLE != 1 ]] || SAVE_EVERY=${SAVE_FREQ:-10}
# The cap on responses, off unless ENABLE is 1. Here, because Ray's workers may have been started without them.
export VLLM_ROLLOUT_EARLY_STOP_ENABLE=${VLLM_ROLLOUT_EARLY_STOP_ENABLE:-0}
export VLLM_ROLLOUT_EARLY_STOP_FACTOR=${VLLM_ROLLOUT_EARLY_STOP_FACTOR:-2.0}
export VLLM_ROLLOUT_EARLY_STOP_MIN_TOKENS=${VLLM_ROLLOUT_EARLY_STOP_MIN_TOKENS:-10000}
# shellcheck source=internal/qwen3_32b.sh
source "$root/internal/qwen3_32b.sh"

args=(
    data.dataloader_num_workers=0
    data.seed=1
    actor_rollout_ref.actor.megatron.use_mbridge=False
    actor_rollout_ref.actor.megatron.use_dist_checkpointing=True
    "actor_rollout_ref.actor.megatron.dist_checkpointing_path=$(hydra_quote "$DISTCP_PATH")"
    actor_rollout_ref.ref.megatron.use_dist_checkpointing=True
    "actor_rollout_ref.ref.megatron.dist_checkpointing_path=$(hydra_quote "$DISTCP_PATH")"
)
if [[ $VLLM_EAGER_BASELINE_NO_RESAMPLE == 1 ]]; then
    args+=(data.shuffle=True)
    VLLM_ROLLOUT_EARLY_STOP_ENABLE=0 # the cap comes from the sampler's estimates
else
    args+=(
        data.shuffle=False
        data.sampler.class_path=pkg://verl.experimental.dataset.length_bucket_sampler
        data.sampler.class_name=LengthAwareEpochSampler
        +data.sampler.bucket_size=1024
        +data.sampler.ema_decay=0.7
        +data.sampler.shuffle_batch_blocks=True
    )
fi
for name in VLLM_ROLLOUT_EARLY_STOP_{ENABLE,FACTOR,MIN_TOKENS}; do
    args+=("+ray_kwargs.ray_init.runtime_env.env_vars.$name=$(hydra_quote "${!name}")")
done
grpo_args
train "$@"
