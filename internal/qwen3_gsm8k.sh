# shellcheck shell=bash
# Qwen3-4B on GSM8K with FSDP: what the NPU and the GPU run have in common, so that they can be compared. The settings can
# be overridden from the environment or by the script that sources this.

# shellcheck source=internal/hydra.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/hydra.sh"

MODEL_PATH=${MODEL_PATH:-$root/models/Qwen3-4B} # a Hugging Face folder
DATA_DIR=${DATA_DIR:-$root/data/gsm8k}          # train.parquet and test.parquet
TRAIN_BATCH=${TRAIN_BATCH:-512}                 # prompts a step
MINI_BATCH=${MINI_BATCH:-256}                   # prompts an update
RESPONSES=${RESPONSES:-5}                       # responses a prompt (the group)
LEARNING_RATE=${LEARNING_RATE:-5e-7}
EPOCHS=${EPOCHS:-15}
STEPS=${STEPS:-null}        # training steps; null: all of EPOCHS
TEST_EVERY=${TEST_EVERY:-5} # steps
ROLLOUT_TP=${ROLLOUT_TP:-2}
MEMORY_UTILIZATION=${MEMORY_UTILIZATION:-0.9} # of a device, for weights and KV cache
RUN_FOLDER=${RUN_FOLDER:-$root/outputs/$NAME} # ray_start_npu.sh sets it
args=() # the train script's own

# train ARGUMENT...: GRPO with `args` after the common ones, then the arguments; does not return.
train() {
    local common=(
        algorithm.adv_estimator=grpo
        algorithm.use_kl_in_reward=False
        "data.train_files=$(hydra_quote "$DATA_DIR/train.parquet")"
        "data.val_files=$(hydra_quote "$DATA_DIR/test.parquet")"
        data.train_batch_size="$TRAIN_BATCH"
        data.max_prompt_length=1024
        data.max_response_length=1024
        data.filter_overlong_prompts=True
        data.truncation=error

        "actor_rollout_ref.model.path=$(hydra_quote "$MODEL_PATH")"
        actor_rollout_ref.model.use_remove_padding=True
        actor_rollout_ref.model.enable_gradient_checkpointing=True

        actor_rollout_ref.actor.strategy=fsdp
        actor_rollout_ref.actor.fsdp_config.param_offload=True
        actor_rollout_ref.actor.fsdp_config.optimizer_offload=True
        actor_rollout_ref.actor.ppo_mini_batch_size="$MINI_BATCH"
        actor_rollout_ref.actor.use_dynamic_bsz=True
        actor_rollout_ref.actor.ppo_max_token_len_per_gpu=3000
        actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=4096
        actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=8192
        actor_rollout_ref.actor.entropy_coeff=0.001
        actor_rollout_ref.actor.use_kl_loss=True
        actor_rollout_ref.actor.kl_loss_coef=0.001
        actor_rollout_ref.actor.kl_loss_type=low_var_kl
        actor_rollout_ref.actor.optim.lr="$LEARNING_RATE"

        actor_rollout_ref.rollout.name=vllm
        actor_rollout_ref.rollout.n="$RESPONSES"
        actor_rollout_ref.rollout.tensor_model_parallel_size="$ROLLOUT_TP"
        actor_rollout_ref.rollout.gpu_memory_utilization="$MEMORY_UTILIZATION"
        actor_rollout_ref.rollout.enforce_eager=True

        trainer.nnodes=1
        'trainer.logger=[console,file]'
        trainer.project_name=qwen3-rl
        trainer.experiment_name="$NAME"
        "trainer.default_local_dir=$(hydra_quote "$RUN_FOLDER/checkpoints")"
        "hydra.run.dir=$(hydra_quote "$RUN_FOLDER/hydra")"
        trainer.total_epochs="$EPOCHS"
        trainer.total_training_steps="$STEPS"
        trainer.save_freq=-1
        trainer.test_freq="$TEST_EVERY"
    )
    exec python3 -m verl.trainer.main_ppo "${common[@]}" "${args[@]}" "$@"
}
