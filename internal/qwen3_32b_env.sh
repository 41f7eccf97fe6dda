# shellcheck shell=bash
# The environment of the Qwen3-32B runs, sourced by ray_start_npu.sh before Ray starts: Ray's workers inherit it.
# shellcheck source=internal/qwen3_npu_env.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/qwen3_npu_env.sh"
