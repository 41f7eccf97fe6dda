# shellcheck shell=bash
# Qwen3-235B-A22B with Megatron: settings of all its runs, overridable from the environment or by the script that sources
# this.

MODEL_PATH=${MODEL_PATH:-$root/models/Qwen3-235B-A22B}         # a Hugging Face folder
DISTCP_PATH=${DISTCP_PATH:-$root/models/Qwen3-235B-A22B-mcore} # the same weights, sharded (docs/running.md)
NNODES=${NNODES:-8}                       # machines, as ray_start_npu.sh takes it
NPUS_PER_NODE=${NPUS_PER_NODE:-16}        # dies of a node
PROMPT_LENGTH=${PROMPT_LENGTH:-2048}      # tokens; longer prompts are left out
RESPONSE_LENGTH=${RESPONSE_LENGTH:-32768} # tokens
TRAIN_BATCH=${TRAIN_BATCH:-512}           # prompts a step
MINI_BATCH=${MINI_BATCH:-$TRAIN_BATCH}    # prompts an update
RESPONSES=${RESPONSES:-16}                # responses a prompt (the group)
LEARNING_RATE=${LEARNING_RATE:-1e-6}
EPOCHS=${EPOCHS:-1}
STEPS=${STEPS:-null}         # training steps; null: all of EPOCHS
SAVE_EVERY=${SAVE_EVERY:--1} # steps; -1: never
TEST_EVERY=${TEST_EVERY:--1}

# Training.
TP=${TP:-4}
PP=${PP:-4}
CP=${CP:-4}
whole_numbers NNODES NPUS_PER_NODE PP
EP=${EP:-$((NNODES * NPUS_PER_NODE / PP))}
FIRST_STAGE=${FIRST_STAGE:-23} # layers of the first and of the last pipeline stage; the others share the rest
LAST_STAGE=${LAST_STAGE:-23}

# Rollout: VLLM_ENABLE_EXPERT_PARALLEL=1 spreads the experts over ROLLOUT_TP * VLLM_DP_SIZE dies (qwen3_235b_env.sh).
ROLLOUT_TP=${ROLLOUT_TP:-4}
MEMORY_UTILIZATION=${MEMORY_UTILIZATION:-0.87} # of a die, for weights and KV cache
MAX_NUM_SEQS=${MAX_NUM_SEQS:-256}              # requests at once
GRAPH_SIZES=${GRAPH_SIZES:-}                    # tokens a step that have a graph, 4,8,...; empty: computed
DRAFT_TOKENS=${DRAFT_TOKENS:-3}                # SAM's drafts a request and step; 0: no speculation
TEMPERATURE=${TEMPERATURE:-0.9}
TOP_P=${TOP_P:-0.9}
TOP_K=${TOP_K:-50}

RUN_FOLDER=${RUN_FOLDER:-$root/outputs/$NAME} # ray_start_npu.sh sets it
transformer=actor_rollout_ref.actor.megatron.override_transformer_config
args=(
    actor_rollout_ref.actor.megatron.expert_model_parallel_size="$EP"
    actor_rollout_ref.actor.megatron.expert_tensor_parallel_size=1
    actor_rollout_ref.actor.megatron.use_mbridge=False
    "+$transformer.num_layers_in_first_pipeline_stage=$FIRST_STAGE"
    "+$transformer.num_layers_in_last_pipeline_stage=$LAST_STAGE"
    "+$transformer.moe_token_dispatcher_type=alltoall"
    "+$transformer.moe_grouped_gemm=True"
    "+$transformer.moe_permute_fusion=True"
    "+$transformer.gradient_accumulation_fusion=True"
)
if [[ ${USE_ALLTOALL_OVERLAP:-0} == 1 ]]; then
    args+=(
        "+$transformer.moe_alltoall_overlap_comm=True"
        "+$transformer.moe_zero_memory=level1"
    )
fi
case ${VLLM_ENABLE_EXPERT_PARALLEL:-0} in
0) ;;
1)
    VLLM_DP_SIZE=${VLLM_DP_SIZE:-1}
    whole_numbers ROLLOUT_TP VLLM_DP_SIZE
    args+=(
        actor_rollout_ref.rollout.data_parallel_size="$VLLM_DP_SIZE"
        actor_rollout_ref.rollout.expert_parallel_size=$((ROLLOUT_TP * VLLM_DP_SIZE))
    )
    ;;
*)
    printf 'error: VLLM_ENABLE_EXPERT_PARALLEL = %s is neither 0 nor 1\n next: set it in the env script\n' \
        "$VLLM_ENABLE_EXPERT_PARALLEL" >&2
    exit 2
    ;;
esac

# sharded_weights: the actor and the reference model start from $DISTCP_PATH.
sharded_weights() {
    local part
    for part in actor ref; do
        args+=(
            "actor_rollout_ref.$part.megatron.use_dist_checkpointing=True"
            "actor_rollout_ref.$part.megatron.dist_checkpointing_path=$(hydra_quote "$DISTCP_PATH")"
        )
    done
}
