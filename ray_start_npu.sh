#!/usr/bin/env bash
# ray_start_npu.sh TRAIN_SCRIPT ENV_SCRIPT [OVERRIDE...]: sources ENV_SCRIPT, starts Ray on this machine, runs TRAIN_SCRIPT
# with the overrides (Hydra: key=value) and stops what it started. Ends with TRAIN_SCRIPT's exit code; 2 is wrong usage.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)

fail() {
    printf 'error: %s\n next: %s\n' "$1" "$2" >&2
    exit 2
}

(($# >= 2)) || fail "two arguments are needed, $# given" "bash ray_start_npu.sh TRAIN_SCRIPT ENV_SCRIPT [OVERRIDE...]"
for script in "$1" "$2"; do
    [[ -f $script ]] || fail "there is no script $script" "ls $root/internal shows the scripts that come with this project"
done
train_script=$1 env_script=$2
shift 2
[[ -x $root/.venv/bin/qwen3-rl ]] || fail "$root/.venv is not built" "bash build_project.sh --target cpu (or npu)"
export PATH=$root/.venv/bin:$PATH

# shellcheck source=/dev/null
source "$env_script"
exec python -m qwen3_rl.launch "$train_script" "$@"
