#!/usr/bin/env bash
# with_cann.sh COMMAND [ARGUMENT...]: runs it in CANN's environment. ASCEND_ROOT is where CANN is, /usr/local/Ascend if unset.
set -eo pipefail # not -u: CANN's own scripts read variables that may be unset

root=${ASCEND_ROOT:-/usr/local/Ascend}
toolkit=$root/cann/set_env.sh # from CANN 8.5 on
[[ -f $toolkit ]] || toolkit=$root/ascend-toolkit/set_env.sh
for script in "$toolkit" "$root/nnal/atb/set_env.sh"; do
    if [[ ! -f $script ]]; then
        echo "error: no $script" >&2
        echo " next: install CANN and NNAL, or set ASCEND_ROOT to the folder that they are in" >&2
        exit 2
    fi
    # shellcheck source=/dev/null
    source "$script"
done
# Stand-ins for the driver's libraries, for a build on a machine without one; the driver's own come first.
stand_ins=${ASCEND_TOOLKIT_HOME:-$root/ascend-toolkit/latest}/$(uname -m)-linux/devlib
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$stand_ins
exec "$@"
