# shellcheck shell=bash
# Sourced by the train scripts.

# hydra_quote VALUE: as a quoted string of Hydra's override grammar, for paths with spaces, commas, brackets or letters
# outside ASCII, all of which mean something else there.
hydra_quote() {
    printf "'%s'" "${1//\'/\\\'}"
}
