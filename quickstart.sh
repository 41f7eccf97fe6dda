#!/usr/bin/env bash
# quickstart.sh [--model PATH] [--steps N] [OVERRIDE...]: from a fresh clone to a patched GRPO run on this machine's CPU.
# Makes .venv, frameworks/, models/ and data/ (kept for the next call) and outputs/RUN. Needs Python 3.11 and git.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)

usage="bash quickstart.sh [--model PATH] [--steps N] [OVERRIDE...]"
fail() {
    printf 'error: %s\n next: %s\n' "$1" "${2:-$usage}" >&2
    exit 2
}

model=$root/models/tiny-qwen3
while (($#)); do
    case $1 in
        --model)
            [[ -f ${2:-}/config.json ]] || fail "--model ${2:-}: no Hugging Face model folder (no config.json there)"
            model=$2
            shift 2
            ;;
        --steps)
            [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail "--steps ${2:-}: not a positive number"
            export STEPS=$2
            shift 2
            ;;
        -h | --help) echo "$usage" && exit 0 ;;
        -*) fail "unknown option $1" ;;
        *=* | ~*) break ;;
        *) fail "$1 is no Hydra override (key=value)" ;;
    esac
done
model=$(realpath -m -- "$model")
cd "$root"

echo "== 1/5 sources"
bash download_frameworks_source_code.sh --only verl --only vllm # all that a CPU needs
echo "== 2/5 patches"
bash apply_all_patches.sh
echo "== 3/5 environment"
bash build_project.sh --target cpu
echo "== 4/5 model and data"
if [[ $model == "$root/models/tiny-qwen3" ]]; then
    .venv/bin/qwen3-rl tiny-model --to "$model"
fi
.venv/bin/qwen3-rl data arithmetic --to data/arithmetic
echo "== 5/5 training"
export MODEL_PATH=$model RUN_NAME=${RUN_NAME:-quickstart-$(date +%Y%m%d-%H%M%S)}
bash ray_start_npu.sh internal/train_grpo_qwen3_tiny_cpu.sh internal/qwen3_tiny_cpu_env.sh "$@"
.venv/bin/qwen3-rl summary "${OUTPUTS_DIR:-outputs}/$RUN_NAME"
