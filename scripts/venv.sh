# shellcheck shell=bash
# Sourced by the scripts in the repository's root.

# ensure_venv ROOT: make ROOT/.venv hold this project, with its dependencies; at once if it does already.
# The marker is written last, so an interrupted call is mended by the next one; it names what the environment was made
# for, so a changed pyproject.toml or a moved checkout installs again.
ensure_venv() {
    local root=$1 venv=$1/.venv python=${PYTHON:-python3.11} want
    # Another Python's home, and pip settings that would install elsewhere.
    unset PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX
    export PATCHSET_ROOT=$root
    want="$root $(sha256sum <"$root/pyproject.toml")"
    if [[ $(cat "$venv/.made-for" 2>/dev/null) == "$want" ]] && "$venv/bin/patchset" --help >/dev/null 2>&1; then
        return
    fi
    # An environment whose pip works is kept: it may hold gigabytes that a build has put there.
    if ! "$venv/bin/python" -c 'import pip, sys; sys.exit(sys.version_info[:2] != (3, 11))' >/dev/null 2>&1; then
        if ! "$python" -c 'import ensurepip, sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
            echo "error: $python is not there, is not Python 3.11, or has no venv module" >&2
            echo "next: install Python 3.11 with its venv module, or name one: PYTHON=/path/to/python3.11 bash $0" >&2
            return 8
        fi
        echo "making $venv ..." >&2
        "$python" -m venv --clear "$venv" || return
    fi
    if ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$root"; then
        echo "error: pip could not install this project into $venv; its own words are above" >&2
        echo "next: check the network, PIP_INDEX_URL and the disk, then run the same command again" >&2
        return 8
    fi
    printf '%s\n' "$want" >"$venv/.made-for"
}
