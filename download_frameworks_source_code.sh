#!/usr/bin/env bash
# Make the checkouts of the pinned upstream sources in frameworks/; arguments are those of `patchset fetch`.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=scripts/venv.sh
source "$root/scripts/venv.sh"
ensure_venv "$root"
exec "$root/.venv/bin/patchset" --root "$root" fetch "$@"
