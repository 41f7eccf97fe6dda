#!/usr/bin/env bash
# run_tests.sh [PYTEST_ARGUMENT...]: makes the CPU environment where it is missing, then lints and runs the tests.
# Without arguments all of them; `bash run_tests.sh tests/patchset` runs one folder.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
cd "$root"

bash download_frameworks_source_code.sh
bash apply_all_patches.sh
bash build_project.sh --target cpu
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'

export PATH=$root/.venv/bin:$PATH
export VLLM_PATH=${VLLM_PATH:-$root/frameworks/vllm} # the n-gram proposer that the SAM drafter is compared with
ruff check .
ruff format --check .
shellcheck ./*.sh scripts/*.sh internal/*.sh .ci/run
if (($#)); then
    exec python -m pytest "$@"
fi

# The others run beside those that start Ray, which must run one after the other and mostly wait.
ray=(tests/e2e tests/frameworks tests/launch)
log=$(mktemp)
python -m pytest "${ray[@]/#/--ignore=}" >"$log" 2>&1 &
others=$!
trap 'kill "$others" 2>/dev/null || true; rm -f "$log"' EXIT
code=0
python -m pytest "${ray[@]}" || code=$?
wait "$others" || code=$?
cat "$log"
exit "$code"
