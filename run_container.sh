#!/usr/bin/env bash
# run_container.sh [--dry-run] [--privileged] NAME IMAGE [DOCKER_RUN_OPTION...]: starts a container with this host's NPUs.
# What follows IMAGE goes to `docker run`, `-v /data:/data` for one. --dry-run prints the command and starts nothing.
#
# Settings: SHM_SIZE, the container's shared memory (default 64g). HOST_ROOT, where this host's files are seen (default
# /): set it where this script itself runs in a container that has docker's socket and the host's root mounted.
set -euo pipefail
shopt -s nullglob

usage="bash run_container.sh [--dry-run] [--privileged] NAME IMAGE [DOCKER_RUN_OPTION...]"
fail() {
    printf 'error: %s\n next: %s\n' "$1" "${2:-$usage}" >&2
    exit 2
}

dry_run='' options=()
while [[ ${1:-} == -* ]]; do
    case $1 in
        --dry-run) dry_run=1 ;;
        --privileged) options+=(--privileged) ;;
        -h | --help) echo "$usage" && exit 0 ;;
        *) fail "unknown option $1" ;;
    esac
    shift
done
(($# >= 2)) || fail "NAME and IMAGE are needed"
name=$1 image=$2
shift 2
[[ $name =~ ^[a-zA-Z0-9][a-zA-Z0-9_.-]+$ ]] || fail "$name is no container name" "take letters, digits, and _ . -"
[[ $image != -* ]] || fail "$image is no image"

host=${HOST_ROOT:-/}
host=${host%/}
dies=("$host"/dev/davinci[0-9]*)
((${#dies[@]})) || fail "no $host/dev/davinci*: this host has no NPU, or its driver is not loaded" "run: npu-smi info"
for device in "${dies[@]}" "$host"/dev/{davinci_manager,devmm_svm,hisi_hdc}; do
    [[ -e $device ]] || fail "$device is missing, so the dies cannot be used" "is the driver (HDK) installed whole?"
    options+=(--device "${device#"$host"}")
done
[[ -d $host/usr/local/Ascend/driver ]] || fail "no $host/usr/local/Ascend/driver" "install the driver (HDK) on this host"
# The driver's files and tools, and the addresses of the dies' own network ports: what of them is there.
for path in /usr/local/Ascend/{driver,firmware} /usr/local/dcmi /usr/local/sbin /usr/local/bin/npu-smi /usr/bin/hccn_tool \
    /etc/{ascend_install.info,hccn.conf}; do
    [[ ! -e $host$path ]] || options+=(--volume "$path:$path:ro")
done

# Ray and HCCL listen on the host's addresses. 65536 open files are what the doctor asks for.
command=(docker run --detach --init --name "$name" --network host --shm-size "${SHM_SIZE:-64g}" --ulimit nofile=65536
    --ulimit memlock=-1 "${options[@]}" "$@" "$image" sleep infinity)
if [[ $dry_run ]]; then
    printf '%q ' "${command[@]}" && echo
    exit
fi
command -v docker >/dev/null || fail "docker is not on PATH" "install docker, or see the command with --dry-run"
"${command[@]}"
echo "${#dies[@]} dies; enter with: docker exec -it $name bash"
