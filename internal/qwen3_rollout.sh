# shellcheck shell=bash
# How vLLM-Ascend generates faster, sourced by the train scripts: SAM drafts and graphs. Both fill the array rollout_args.

rollout_args=()

# speculation: SAM with $DRAFT_TOKENS tokens a step; 0 is off.
speculation() {
    local engine=actor_rollout_ref.rollout.engine_kwargs.vllm
    if [[ ! $DRAFT_TOKENS =~ ^[0-9]+$ ]]; then
        printf 'error: DRAFT_TOKENS = %s is no whole number\n next: set it in the env script, 0 for none\n' \
            "$DRAFT_TOKENS" >&2
        exit 2
    fi
    if ((10#$DRAFT_TOKENS > 0)); then
        rollout_args+=(
            "+$engine.speculative_config.method=sam"
            "+$engine.speculative_config.num_speculative_tokens=$DRAFT_TOKENS"
        )
    fi
}

# graphs: VLLM_ENABLE_GRAPH_MODE=1 takes npugraph_ex with the mode and the capture sizes that qwen3_rl.npugraph gives it
# (docs/graph-mode.md), or with $GRAPH_SIZES; 0 runs eager.
graphs() {
    local engine=actor_rollout_ref.rollout.engine_kwargs.vllm
    case ${VLLM_ENABLE_GRAPH_MODE:-0} in
    0) rollout_args+=(actor_rollout_ref.rollout.enforce_eager=True) ;;
    1)
        rollout_args+=(
            actor_rollout_ref.rollout.enforce_eager=False
            "+$engine.additional_config.enable_npugraph_ex=True"
        )
        if [[ -n ${GRAPH_SIZES:-} ]]; then
            rollout_args+=("actor_rollout_ref.rollout.cudagraph_capture_sizes=[$GRAPH_SIZES]")
        fi
        ;;
    *)
        printf 'error: VLLM_ENABLE_GRAPH_MODE = %s is neither 0 nor 1\n next: set it in the env script\n' \
            "$VLLM_ENABLE_GRAPH_MODE" >&2
        exit 2
        ;;
    esac
}
