#!/usr/bin/env bash
# Put all patches on the checkouts in frameworks/, or change nothing; arguments are those of `patchset apply`.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=scripts/venv.sh
source "$root/scripts/venv.sh"
ensure_venv "$root"
exec "$root/.venv/bin/patchset" --root "$root" apply "$@"
