# shellcheck shell=bash
# Qwen3-32B with Megatron: settings of all its runs, overridable from the environment or by the script that sources this.

MODEL_PATH=${MODEL_PATH:-$root/models/Qwen3-32B} # a Hugging Face folder
NNODES=${NNODES:-2}                              # machines, as ray_start_npu.sh takes it
NPUS_PER_NODE=${NPUS_PER_NODE:-16}               # dies of a node
PROMPT_LENGTH=${PROMPT_LENGTH:-2048}             # tokens; longer prompts are left out
RESPONSE_LENGTH=${RESPONSE_LENGTH:-34816}        # tokens
TRAIN_BATCH=${TRAIN_BATCH:-32}                   # prompts a step
MINI_BATCH=${MINI_BATCH:-$TRAIN_BATCH}           # prompts an update
RESPONSES=${RESPONSES:-16}                       # responses a prompt (the group)
LEARNING_RATE=${LEARNING_RATE:-1e-6}
EPOCHS=${EPOCHS:-1}
STEPS=${STEPS:-null}         # training steps; null: all of EPOCHS
SAVE_EVERY=${SAVE_EVERY:--1} # steps; -1: never
TEST_EVERY=${TEST_EVERY:--1}

# Training.
TP=${TP:-8}
PP=${PP:-2}
whole_numbers NNODES NPUS_PER_NODE TP PP
CP=${CP:-$((NNODES * NPUS_PER_NODE / (TP * PP)))}

# Rollout.
ROLLOUT_TP=${ROLLOUT_TP:-8}
MEMORY_UTILIZATION=${MEMORY_UTILIZATION:-0.87} # of a die, for weights and KV cache
MAX_NUM_SEQS=${MAX_NUM_SEQS:-128}              # requests at once
GRAPH_SIZES=${GRAPH_SIZES:-}                   # tokens a step that have a graph, 4,8,...; empty: computed
DRAFT_TOKENS=${DRAFT_TOKENS:-3}                # SAM's drafts a request and step; 0: no speculation
TEMPERATURE=${TEMPERATURE:-0.9}
TOP_P=${TOP_P:-1.0}
TOP_K=${TOP_K:--1}

RUN_FOLDER=${RUN_FOLDER:-$root/outputs/$NAME} # ray_start_npu.sh sets it
# shellcheck disable=SC2034 # train takes it
args=(
    actor_rollout_ref.actor.megatron.use_mbridge=True
)
