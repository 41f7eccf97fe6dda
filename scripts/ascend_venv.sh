#!/usr/bin/env bash
# ascend_venv.sh: makes .venv-ascend, in which the patched vllm-ascend runs without an NPU (docs/ascend.md); at once if it
# is there. Needs gcc, readelf and the checkouts in frameworks/. 2.5 GB.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=$root/.venv-ascend
frameworks=$(cd "$root" && realpath -m "${FRAMEWORKS_DIR:-frameworks}")
python=${PYTHON:-python3.11}
unset PYTHONHOME PYTHONPATH PIP_USER PIP_TARGET PIP_PREFIX

fail() {
    echo "error: $1" >&2
    echo "next: $2, then run the same command again" >&2
    exit 8
}

for tool in gcc readelf "$python"; do
    command -v "$tool" >/dev/null || fail "$tool is not there" "install it (gcc and binutils; Python 3.11 or PYTHON=...)"
done
for name in vllm vllm-ascend; do
    [[ -d $frameworks/$name ]] || fail "no checkout of $name" "run: bash download_frameworks_source_code.sh"
done

site=$venv/lib/python3.11/site-packages
want="$venv $(cat "$root/requirements-ascend-cpu.txt" "$root/scripts/ascend/stubs.py" | sha256sum)"
if [[ $(cat "$venv/.made-for" 2>/dev/null) != "$want" ]]; then
    # Made anew as a whole: what an interrupted pip has left cannot be told from what it has finished.
    echo "making $venv ..." >&2
    "$python" -m venv --clear "$venv"
    [[ -d $site ]] || fail "$python is not Python 3.11" "name one: PYTHON=/path/to/python3.11"
    # Four pips side by side: most of the time is waiting for the index. Without dependencies they do not meet.
    grep -v '^#' "$root/requirements-ascend-cpu.txt" |
        xargs -P 4 -n 29 "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile ||
        fail "pip could not install requirements-ascend-cpu.txt into $venv" "check the network, PIP_INDEX_URL and the disk"
    "$venv/bin/python" "$root/scripts/ascend/stubs.py" "$site"
    printf '%s\n' "$want" >"$venv/.made-for"
fi
"$venv/bin/python" "$root/scripts/ascend/link.py" "$site" "$root" "$frameworks"
