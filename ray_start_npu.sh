#!/usr/bin/env bash
# ray_start_npu.sh TRAIN_SCRIPT ENV_SCRIPT [OVERRIDE...]: sources ENV_SCRIPT, starts Ray on this machine, runs TRAIN_SCRIPT
# with the overrides (Hydra: key=value) and stops what it started. Ends with TRAIN_SCRIPT's exit code; 2 is wrong usage.
# On a cluster: the same command on every machine, with NNODES and MASTER_ADDR set (docs/launcher.md).
# ray_start_npu.sh --stop-mine: ends what an earlier run of yours left whose launcher was killed.
# DRY_RUN=1 checks the run and starts nothing: 1 means that it would fail.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)

fail() {
    printf 'error: %s\n next: %s\n' "$1" "$2" >&2
    exit 2
}

[[ ${1:-} == --stop-mine ]] || (($# >= 2)) || fail "two arguments are needed, $# given" "bash ray_start_npu.sh TRAIN_SCRIPT ENV_SCRIPT [OVERRIDE...]"
[[ -x $root/.venv/bin/qwen3-rl ]] || fail "$root/.venv is not built" "bash build_project.sh --target cpu (or npu)"
unset PYTHONHOME # another Python's
export PATCHSET_ROOT=$root
if [[ ${DRY_RUN:-0} == 1 ]]; then
    exec "$root/.venv/bin/python" -P -m qwen3_rl.cli dry-run "$@"
fi
exec "$root/.venv/bin/python" -P -m qwen3_rl.launch "$@"
