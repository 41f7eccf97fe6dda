# shellcheck shell=bash
# What the Megatron runs have in common, sourced by their train scripts, which set the capital variables used here.

here=$(dirname -- "${BASH_SOURCE[0]}")
# shellcheck source=internal/hydra.sh
source "$here/hydra.sh"
# shellcheck source=internal/qwen3_rollout.sh
source "$here/qwen3_rollout.sh"

# train ARGUMENT...: GRPO with `args` after the common ones, then the arguments; does not return. Main module: $MAIN.
train() {
    whole_numbers PROMPT_LENGTH RESPONSE_LENGTH CP
    local transformer=actor_rollout_ref.actor.megatron.override_transformer_config
    local sequence=$((PROMPT_LENGTH + RESPONSE_LENGTH))
    local tokens=$((sequence / CP)) # a die's share of the longest sequence
    local common=(
        algorithm.adv_estimator=grpo
        algorithm.use_kl_in_reward=False
        "data.train_files=$(hydra_quote "$TRAIN_FILE")"
        "data.val_files=$(hydra_quote "$TEST_FILE")"
        data.train_batch_size="$TRAIN_BATCH"
        data.max_prompt_length="$PROMPT_LENGTH"
        data.max_response_length="$RESPONSE_LENGTH"
        data.filter_overlong_prompts=True
        data.truncation=error

        "actor_rollout_ref.model.path=$(hydra_quote "$MODEL_PATH")"

        actor_rollout_ref.actor.ppo_mini_batch_size="$MINI_BATCH"
        actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1
        actor_rollout_ref.actor.use_dynamic_bsz=True
        actor_rollout_ref.actor.ppo_max_token_len_per_gpu="$tokens"
        actor_rollout_ref.actor.entropy_coeff=0
        actor_rollout_ref.actor.optim.lr="$LEARNING_RATE"
        actor_rollout_ref.actor.optim.clip_grad=10000
        actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=1
        actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1

        actor_rollout_ref.actor.megatron.tensor_model_parallel_size="$TP"
        actor_rollout_ref.actor.megatron.pipeline_model_parallel_size="$PP"
        actor_rollout_ref.actor.megatron.context_parallel_size="$CP"
        actor_rollout_ref.actor.megatron.param_offload=True
        actor_rollout_ref.actor.megatron.grad_offload=True
        # The optimizer's state is moved piece by piece by swap_optimizer instead.
        actor_rollout_ref.actor.megatron.optimizer_offload=False
        actor_rollout_ref.ref.megatron.param_offload=True

        "$transformer.recompute_granularity=full"
        "$transformer.recompute_method=uniform"
        "$transformer.recompute_num_layers=1"
        # MindSpeed's own settings.
        "+$transformer.seq_length=2048"
        "+$transformer.use_flash_attn=True"
        "+$transformer.use_fused_rotary_pos_emb=True"
        "+$transformer.use_fused_swiglu=True"
        "+$transformer.swap_optimizer=True"
        "+$transformer.context_parallel_size=$CP"
        "+$transformer.context_parallel_algo=megatron_cp_algo"
        "+$transformer.use_cp_send_recv_overlap=True"
        "+$transformer.use_fused_ring_attention_update=True"
        "+$transformer.cp_window_size=1"

        actor_rollout_ref.rollout.name=vllm
        actor_rollout_ref.rollout.n="$RESPONSES"
        actor_rollout_ref.rollout.temperature="$TEMPERATURE"
        actor_rollout_ref.rollout.top_p="$TOP_P"
        actor_rollout_ref.rollout.top_k="$TOP_K"
        actor_rollout_ref.rollout.tensor_model_parallel_size="$ROLLOUT_TP"
        actor_rollout_ref.rollout.gpu_memory_utilization="$MEMORY_UTILIZATION"
        actor_rollout_ref.rollout.max_num_seqs="$MAX_NUM_SEQS"
        actor_rollout_ref.rollout.max_model_len="$sequence"

        trainer.device=npu
        trainer.nnodes="$NNODES"
        trainer.n_gpus_per_node="$NPUS_PER_NODE"
        'trainer.logger=[console,file]'
        trainer.project_name=qwen3-rl
        trainer.experiment_name="$NAME"
        "trainer.default_local_dir=$(hydra_quote "$RUN_FOLDER/checkpoints")"
        "hydra.run.dir=$(hydra_quote "$RUN_FOLDER/hydra")"
        trainer.total_epochs="$EPOCHS"
        trainer.total_training_steps="$STEPS"
        trainer.save_freq="$SAVE_EVERY"
        trainer.test_freq="$TEST_EVERY"
        trainer.val_before_train=False
    )
    speculation
    graphs
    exec python3 -m "${MAIN:-verl.trainer.main_ppo}" --config-name=ppo_megatron_trainer \
        "${common[@]}" "${rollout_args[@]}" "${args[@]}" "$@"
}

# grpo_args: GRPO's loss, with the reference model's KL divergence in it, and the reward of deepscaler's answers.
grpo_args() {
    args+=(
        actor_rollout_ref.actor.use_kl_loss=True
        actor_rollout_ref.actor.kl_loss_coef=0.001
        actor_rollout_ref.actor.kl_loss_type=low_var_kl
        "reward.custom_reward_function.path=$REWARD"
        reward.custom_reward_function.name=compute_score
    )
}

# dapo_args: DAPO's loss, rewards and dynamic sampling.
dapo_args() {
    MAIN=qwen3_rl.dapo.main
    args+=(
        actor_rollout_ref.actor.use_kl_loss=False
        actor_rollout_ref.actor.clip_ratio_low=0.2
        actor_rollout_ref.actor.clip_ratio_high=0.28
        actor_rollout_ref.actor.clip_ratio_c=10.0
        actor_rollout_ref.actor.loss_agg_mode=token-mean
        +data.gen_batch_size="$GEN_BATCH"
        +algorithm.filter_groups.enable=True
        +algorithm.filter_groups.metric=acc
        +algorithm.filter_groups.max_num_gen_batches="$MAX_GEN_BATCHES"
        reward.reward_manager.name=dapo
        +reward.reward_kwargs.max_resp_len="$RESPONSE_LENGTH"
        +reward.reward_kwargs.overlong_buffer_cfg.enable="$OVERLONG_PENALTY"
        +reward.reward_kwargs.overlong_buffer_cfg.len="$OVERLONG_BUFFER"
        +reward.reward_kwargs.overlong_buffer_cfg.penalty_factor=0.1
        +reward.reward_kwargs.overlong_buffer_cfg.log=False
        # Truncated importance sampling between rollout and actor, per token. It needs the rollout's log-probabilities.
        actor_rollout_ref.rollout.calculate_log_probs=True
        algorithm.rollout_correction.rollout_is=token
        algorithm.rollout_correction.rollout_is_threshold=2.0
    )
}
