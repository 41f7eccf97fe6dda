#!/usr/bin/env bash
# Installs, as root, what the NPU build needs of the system beside CANN and Python 3.11: compilers, git, jemalloc.
# For openEuler and its kin (dnf or yum), and Debian and its kin (apt-get). The image and a bare node both call it.
set -euo pipefail

if command -v dnf >/dev/null || command -v yum >/dev/null; then
    manager=$(command -v dnf || command -v yum)
    "$manager" install -y git gcc gcc-c++ make cmake patch findutils numactl-devel jemalloc
    "$manager" clean all
elif command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update
    apt-get install -y --no-install-recommends ca-certificates git gcc g++ make cmake patch libnuma-dev libjemalloc2 \
        python3 python3-dev python3-venv
    rm -rf /var/lib/apt/lists/*
else
    echo "error: neither dnf, yum nor apt-get is here" >&2
    echo "next: install git, gcc, g++, make, cmake, patch, numactl's headers and jemalloc by hand" >&2
    exit 2
fi
