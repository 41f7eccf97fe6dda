#!/usr/bin/env bash
# GRPO of a dense Qwen3 (written for 32B) with the length-aware sampler, on one machine of 16 dies: docs/length-aware.md.
# Arguments are Hydra overrides, the last one wins.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=internal/hydra.sh
source "$root/internal/hydra.sh"

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
VLLM_EAGER_BASELINE_NO_RESAMPLE=${VLLM_EAGER_BASELINE_NO_RESAMPLE:-0} # 1: veRL's shuffle instead, else the same run
SAVE_CKPT_ENABLE=${SAVE_CKPT_ENABLE:-0}                               # 1: a checkpoint every SAVE_FREQ steps
SAVE_FREQ=${SAVE_FREQ:-10}
TRAIN_BATCH=${TRAIN_BATCH:-32}
RESPONSES=${RESPONSES:-16}
MAX_PROMPT=${MAX_PROMPT:-2048}
MAX_RESPONSE=${MAX_RESPONSE:-34816}
# The cap on responses, off unless ENABLE is 1. Here, because Ray's workers may have been started without them.
export VLLM_ROLLOUT_EARLY_STOP_ENABLE=${VLLM_ROLLOUT_EARLY_STOP_ENABLE:-0}
export VLLM_ROLLOUT_EARLY_STOP_FACTOR=${VLLM_ROLLOUT_EARLY_STOP_FACTOR:-2.0}
export VLLM_ROLLOUT_EARLY_STOP_MIN_TOKENS=${VLLM_ROLLOUT_EARLY_STOP_MIN_TOKENS:-10000}

run_folder=${RUN_FOLDER:-$root/outputs/resampler} # from ray_start_npu.sh
tokens=$((MAX_PROMPT + MAX_RESPONSE))

if [[ $VLLM_EAGER_BASELINE_NO_RESAMPLE == 1 ]]; then
    order=(data.shuffle=True)
    VLLM_ROLLOUT_EARLY_STOP_ENABLE=0 # the cap comes from the sampler's estimates
else
    order=(
        data.shuffle=False
        data.sampler.class_path=pkg://verl.experimental.dataset.length_bucket_sampler
        data.sampler.class_name=LengthAwareEpochSampler
        +data.sampler.bucket_size=1024
        +data.sampler.ema_decay=0.7
        +data.sampler.shuffle_batch_blocks=True
    )
fi
save_freq=-1
[[ $SAVE_CKPT_ENABLE == 1 ]] && save_freq=$SAVE_FREQ
workers_env=()
for name in VLLM_ROLLOUT_EARLY_STOP_{ENABLE,FACTOR,MIN_TOKENS}; do
    workers_env+=("+ray_kwargs.ray_init.runtime_env.env_vars.$name=$(hydra_quote "${!name}")")
done
override=actor_rollout_ref.actor.megatron.override_transformer_config

args=(
    --config-path=config
    --config-name=ppo_megatron_trainer
    algorithm.adv_estimator=grpo
    "data.train_files=$(hydra_quote "$TRAIN_FILE")"
    "data.val_files=$(hydra_quote "$TEST_FILE")"
    data.train_batch_size="$TRAIN_BATCH"
    data.max_prompt_length="$MAX_PROMPT"
    data.max_response_length="$MAX_RESPONSE"
    data.filter_overlong_prompts=True
    data.truncation=error
    data.dataloader_num_workers=0
    data.seed=1
    "${order[@]}"
    "${workers_env[@]}"

    "actor_rollout_ref.model.path=$(hydra_quote "$MODEL_PATH")"
    actor_rollout_ref.actor.ppo_mini_batch_size="$TRAIN_BATCH"
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1
    actor_rollout_ref.actor.use_dynamic_bsz=True
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu="$tokens"
    actor_rollout_ref.actor.use_kl_loss=True
    actor_rollout_ref.actor.kl_loss_coef=0.001
    actor_rollout_ref.actor.kl_loss_type=low_var_kl
    actor_rollout_ref.actor.optim.lr=1e-6
    actor_rollout_ref.actor.optim.clip_grad=10000
    actor_rollout_ref.actor.megatron.use_mbridge=False
    actor_rollout_ref.actor.megatron.use_dist_checkpointing=True
    "actor_rollout_ref.actor.megatron.dist_checkpointing_path=$(hydra_quote "$DISTCP_PATH")"
    actor_rollout_ref.actor.megatron.tensor_model_parallel_size=8
    actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2
    actor_rollout_ref.actor.megatron.param_offload=True
    actor_rollout_ref.actor.megatron.grad_offload=True
    "++$override.seq_length=2048"
    "++$override.use_flash_attn=True"
    "++$override.use_fused_rotary_pos_emb=True"
    "++$override.use_fused_swiglu=True"
    "++$override.swap_optimizer=True"
    "++$override.recompute_granularity=full"
    "++$override.recompute_method=uniform"
    "++$override.recompute_num_layers=1"

    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=1
    actor_rollout_ref.ref.megatron.use_dist_checkpointing=True
    "actor_rollout_ref.ref.megatron.dist_checkpointing_path=$(hydra_quote "$DISTCP_PATH")"

    actor_rollout_ref.rollout.name=vllm
    actor_rollout_ref.rollout.n="$RESPONSES"
    actor_rollout_ref.rollout.temperature=0.9
    actor_rollout_ref.rollout.tensor_model_parallel_size=8
    actor_rollout_ref.rollout.enforce_eager=True
    actor_rollout_ref.rollout.gpu_memory_utilization=0.87
    actor_rollout_ref.rollout.max_num_seqs=128
    actor_rollout_ref.rollout.max_model_len="$tokens"
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1

    trainer.device=npu
    trainer.n_gpus_per_node=16
    trainer.nnodes=1
    'trainer.logger=[console,file]'
    trainer.project_name=qwen3-rl
    trainer.experiment_name=resampler
    "trainer.default_local_dir=$(hydra_quote "$run_folder/checkpoints")"
    "hydra.run.dir=$(hydra_quote "$run_folder/hydra")"
    trainer.total_epochs=4
    trainer.save_freq="$save_freq"
    trainer.test_freq=-1
    trainer.val_before_train=False
)
exec python3 -m verl.trainer.main_ppo "${args[@]}" "$@"
