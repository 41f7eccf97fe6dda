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
hadolint Dockerfile.qwen3
exec python -m pytest "$@"
