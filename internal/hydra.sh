# shellcheck shell=bash
# Sourced by the train scripts.

# hydra_quote VALUE: as a quoted string of Hydra's override grammar, for paths with spaces, commas, brackets or letters
# outside ASCII, all of which mean something else there.
hydra_quote() {
    printf "'%s'" "${1//\'/\\\'}"
}

# whole_numbers NAME...: ends the script unless each of these settings is a number that bash can reckon with.
whole_numbers() {
    local setting
    for setting; do
        if [[ ! ${!setting} =~ ^[1-9][0-9]*$ ]]; then
            printf 'error: %s = %s is no whole number of 1 or more\n next: set it right in the env script, or in the environment if it comes from there\n' "$setting" "${!setting}" >&2
            exit 2
        fi
    done
}
