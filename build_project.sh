#!/usr/bin/env bash
# build_project.sh --target cpu|npu: installs the patched checkouts, and what they import, into .venv.
# TORCH_INDEX_URL takes torch from another index (PyTorch's CPU builds are the smaller ones).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/venv.sh
source "$root/scripts/venv.sh"
ensure_venv "$root"
exec "$root/.venv/bin/qwen3-rl" build "$@"
