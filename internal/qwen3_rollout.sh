# shellcheck shell=bash
# How vLLM-Ascend generates faster, sourced by the train scripts: SAM drafts and graphs. Both fill the array rollout_args.

rollout_args=()

# speculation: SAM with $DRAFT_TOKENS tokens a step; 0 is off.
speculation() {
    local engine=actor_rollout_ref.rollout.engine_kwargs.vllm
    if ((DRAFT_TOKENS > 0)); then
        rollout_args+=(
            "+$engine.speculative_config.method=sam"
            "+$engine.speculative_config.num_speculative_tokens=$DRAFT_TOKENS"
        )
    fi
}

# graphs: npugraph_ex for batches of $GRAPH_SIZES tokens with VLLM_ENABLE_GRAPH_MODE=1, else eager.
graphs() {
    local engine=actor_rollout_ref.rollout.engine_kwargs.vllm
    if [[ ${VLLM_ENABLE_GRAPH_MODE:-0} == 1 ]]; then
        rollout_args+=(
            actor_rollout_ref.rollout.enforce_eager=False
            "+$engine.additional_config.enable_npugraph_ex=True"
            # veRL's default, FULL_AND_PIECEWISE, turns npugraph_ex off.
            "+$engine.compilation_config.cudagraph_mode=FULL_DECODE_ONLY"
            "+$engine.compilation_config.cudagraph_capture_sizes=[$GRAPH_SIZES]"
        )
    else
        rollout_args+=(actor_rollout_ref.rollout.enforce_eager=True)
    fi
}
