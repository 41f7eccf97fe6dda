# shellcheck shell=bash
# Sourced by the scripts in the repository's root.

# ensure_venv ROOT: make ROOT/.venv hold this project, with its dependencies; at once if it does already.
# The marker is written last, so an interrupted call is mended by the next one; it names what the environment was made
# for, so a changed pyproject.toml or a moved checkout installs again.
ensure_venv() {
    local root=$1 venv=$1/.venv python=${PYTHON:-python3.11} want
    want="$root $(sha256sum <"$root/pyproject.toml")"
    if [[ -x $venv/bin/patchset && $(cat "$venv/.made-for" 2>/dev/null) == "$want" ]]; then
        return
    fi
    # An environment whose pip works is kept: it may hold gigabytes that a build has put there.
    if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        if ! command -v "$python" >/dev/null; then
            echo "error: $python was not found" >&2
            echo "next: install Python 3.11 with its venv module, or name one: PYTHON=/path/to/python3.11 $0" >&2
            return 8
        fi
        echo "making $venv ..." >&2
        "$python" -m venv --clear "$venv" || return
    fi
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$root" || return
    printf '%s\n' "$want" >"$venv/.made-for"
}
