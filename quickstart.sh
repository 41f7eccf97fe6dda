#!/usr/bin/env bash
# quickstart.sh [--model PATH] [--steps N] [OVERRIDE...]: from a fresh clone to a patched GRPO run on this machine's CPU.
# Makes .venv, frameworks/, models/ and data/ (kept for the next call) and outputs/RUN. Needs Python 3.11 and git.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
cd "$root"

usage="bash quickstart.sh [--model PATH] [--steps N] [OVERRIDE...]"
model=$root/models/tiny-qwen3
while (($#)); do
    case $1 in
        --model | --steps)
            (($# >= 2)) || { printf 'error: %s needs a value\n next: %s\n' "$1" "$usage" >&2 && exit 2; }
            if [[ $1 == --model ]]; then model=$(realpath -- "$2"); else export STEPS=$2; fi
            shift 2
            ;;
        -h | --help) echo "$usage" && exit 0 ;;
        -*) printf 'error: unknown option %s\n next: %s\n' "$1" "$usage" >&2 && exit 2 ;;
        *) break ;;
    esac
done

echo "== 1/5 sources"
bash download_frameworks_source_code.sh --only verl --only vllm # all that a CPU needs
echo "== 2/5 patches"
bash apply_all_patches.sh
echo "== 3/5 environment"
bash build_project.sh --target cpu
echo "== 4/5 model and data"
if [[ $model == "$root/models/tiny-qwen3" ]]; then
    .venv/bin/qwen3-rl tiny-model --to "$model"
elif [[ ! -f $model/config.json ]]; then
    printf 'error: %s is not a Hugging Face model folder (no config.json)\n next: %s\n' "$model" "$usage" >&2
    exit 2
fi
.venv/bin/qwen3-rl data arithmetic --to data/arithmetic
echo "== 5/5 training"
export MODEL_PATH=$model RUN_NAME=${RUN_NAME:-quickstart-$(date +%Y%m%d-%H%M%S)}
bash ray_start_npu.sh internal/train_grpo_qwen3_tiny_cpu.sh internal/qwen3_tiny_cpu_env.sh "$@"
.venv/bin/qwen3-rl summary "${OUTPUTS_DIR:-outputs}/$RUN_NAME"
