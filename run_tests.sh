#!/usr/bin/env bash
# run_tests.sh [PYTEST_ARGUMENT...]: makes the CPU environment where it is missing, then lints and runs the tests.
# Without arguments all of them; `bash run_tests.sh tests/patchset` runs one folder.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
cd "$root"

bash download_frameworks_source_code.sh
bash apply_all_patches.sh
bash build_project.sh --target cpu
bash scripts/ascend_venv.sh
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'

export PATH=$root/.venv/bin:$PATH
unset PYTHONDONTWRITEBYTECODE # or every process of the tests compiles vLLM and veRL again
export VLLM_PATH=${VLLM_PATH:-$root/frameworks/vllm} # the n-gram proposer that the SAM drafter is compared with
ruff check .
ruff format --check .
shellcheck ./*.sh scripts/*.sh internal/*.sh .ci/run
hadolint Dockerfile.qwen3
# vLLM-Ascend needs another torch, hence an environment of its own.
ascend=(.venv-ascend/bin/python -m pytest)
if [[ ${1:-} == tests/ascend* ]]; then
    exec "${ascend[@]}" "$@"
fi
# Two at a time: many of them wait for processes (tests/conftest.py says which may).
python -m pytest --numprocesses 2 --dist loadgroup --no-loadscope-reorder "$@"
if (($# == 0)); then
    "${ascend[@]}" tests/ascend
fi
