#!/usr/bin/env bash
# GRPO on small sums with a tiny Qwen3, on a CPU: the quickstart. Arguments are Hydra overrides, the last one wins.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=internal/hydra.sh
source "$root/internal/hydra.sh"
# shellcheck source=internal/qwen3_rollout.sh
source "$root/internal/qwen3_rollout.sh"

# Settings to change, here or from the environment.
MODEL_PATH=${MODEL_PATH:-$root/models/tiny-qwen3} # a Hugging Face folder
DATA_DIR=${DATA_DIR:-$root/data/arithmetic}       # train.parquet and test.parquet
STEPS=${STEPS:-24}                                # training steps
TRAIN_BATCH=${TRAIN_BATCH:-32}                    # prompts a step
RESPONSES=${RESPONSES:-8}                         # responses a prompt (the group)
DRAFT_TOKENS=${DRAFT_TOKENS:-3}                   # of SAM speculative decoding; 0: none
TRAINER=${TRAINER:-verl.trainer.main_ppo}         # qwen3_rl.dapo.main adds DAPO's dynamic sampling
LEARNING_RATE=${LEARNING_RATE:-1e-2}              # fits the tiny model; for a real one take 1e-6
whole_numbers TRAIN_BATCH

run_folder=${RUN_FOLDER:-$root/outputs/tiny-cpu} # from ray_start_npu.sh

args=(
    algorithm.adv_estimator=grpo
    "data.train_files=$(hydra_quote "$DATA_DIR/train.parquet")"
    "data.val_files=$(hydra_quote "$DATA_DIR/test.parquet")"
    data.train_batch_size="$TRAIN_BATCH"
    data.max_prompt_length=64
    data.max_response_length=8
    data.dataloader_num_workers=0
    data.filter_overlong_prompts_workers=1
    data.seed=1

    "actor_rollout_ref.model.path=$(hydra_quote "$MODEL_PATH")"
    actor_rollout_ref.model.use_remove_padding=False
    +actor_rollout_ref.model.override_config.attn_implementation=sdpa

    actor_rollout_ref.actor.strategy=fsdp2
    actor_rollout_ref.actor.fsdp_config.model_dtype=fp32
    actor_rollout_ref.actor.fsdp_config.dtype=float32
    actor_rollout_ref.actor.use_torch_compile=False
    actor_rollout_ref.actor.ppo_mini_batch_size=$((TRAIN_BATCH / 2))
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=128
    actor_rollout_ref.actor.use_kl_loss=False
    actor_rollout_ref.actor.optim.lr="$LEARNING_RATE"
    actor_rollout_ref.actor.optim.weight_decay=0.0

    actor_rollout_ref.rollout.name=vllm
    actor_rollout_ref.rollout.n="$RESPONSES"
    actor_rollout_ref.rollout.dtype=float32
    actor_rollout_ref.rollout.tensor_model_parallel_size=1
    actor_rollout_ref.rollout.enforce_eager=True
    actor_rollout_ref.rollout.free_cache_engine=False
    +actor_rollout_ref.rollout.enable_sleep_mode=False
    actor_rollout_ref.rollout.max_model_len=128
    actor_rollout_ref.rollout.max_num_seqs=256
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=128
    actor_rollout_ref.rollout.agent.num_workers=1
    actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=16

    reward.num_workers=1
    reward.custom_reward_function.path=pkg://qwen3_rl.data.arithmetic

    trainer.device=npu
    trainer.n_gpus_per_node=1
    trainer.nnodes="${NNODES:-1}"
    'trainer.logger=[console,file]'
    trainer.project_name=qwen3-rl
    trainer.experiment_name=tiny-cpu
    "trainer.default_local_dir=$(hydra_quote "$run_folder/checkpoints")"
    "hydra.run.dir=$(hydra_quote "$run_folder/hydra")"
    trainer.total_epochs=1000
    trainer.total_training_steps="$STEPS"
    trainer.save_freq=-1
    trainer.test_freq=-1
    trainer.val_before_train=False
    trainer.balance_batch=False
)
speculation
args+=("${rollout_args[@]}")
exec python3 -m "$TRAINER" "${args[@]}" "$@"
