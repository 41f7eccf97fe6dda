"""Memory, shared memory, open files, disk, the allocator."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from qwen3_rl.doctor.findings import Case, Finding, fault, note, ok, warning
from qwen3_rl.doctor.machine import Machine
from qwen3_rl.doctor.npu_smi import for_npu

GB = 1e9
RAY_KILLS_ABOVE = 0.95  # Ray's memory monitor ends workers there (RAY_memory_usage_threshold)
CPU_JOB_GB = 8  # the quickstart was measured at 7.3
CPU_DISK_GB = 13  # docs say so: environment and checkouts
NPU_DISK_GB = 100
SHM_GB = 10  # Ray falls back to slow files in /tmp where a store up to this size does not fit
SHM_NEEDED_GB = 1
FILES = 65536  # Ray's own advice for nodes with many cores
CPU_FILES = 4096


def check_memory(case: Case) -> Iterator[Finding]:
    fields = dict(re.findall(r"^(\w+):\s+(\d+) kB", case.machine.read("/proc/meminfo") or "", re.MULTILINE))
    if "MemTotal" not in fields:
        return
    total, free = (int(fields[key]) * 1024 / GB for key in ("MemTotal", "MemAvailable"))
    if limit := _container_limit(case.machine):
        total, free = min(total, limit[0]), min(free, limit[1])
    found = f"{free:.0f} of {total:.0f} GB available"
    fix = "end what fills it (`ps aux --sort -rss | head`)"
    if 1 - free / total > RAY_KILLS_ABOVE:
        yield fault("memory", found, f"above {total * (1 - RAY_KILLS_ABOVE):.0f} GB", f"Ray would kill workers: {fix}")
    elif not for_npu(case.machine) and free < CPU_JOB_GB:
        yield warning("memory", found, f"{CPU_JOB_GB} GB for the tiny job", fix)
    else:
        yield ok("memory", found)


def _container_limit(machine: Machine) -> tuple[float, float] | None:
    """GB in all and left of a container's limit (cgroup 2), as Ray counts it: without what the kernel can drop."""
    limit, used = (machine.read(f"/sys/fs/cgroup/memory.{name}") or "" for name in ("max", "current"))
    cache = re.search(r"^inactive_file (\d+)", machine.read("/sys/fs/cgroup/memory.stat") or "", re.MULTILINE)
    if not limit.strip().isdigit() or not used.strip().isdigit():
        return None
    return int(limit) / GB, (int(limit) - int(used) + int(cache[1] if cache else 0)) / GB


def free_space(machine: Machine, folder: str) -> tuple[float, float] | None:
    """GB available and in all on the file system of ``folder``."""
    rows = re.findall(r"^\S.*?\s(\d+)\s+(\d+)\s+(\d+)\s+\d+%", machine.run("df", "-kP", folder) or "", re.MULTILINE)
    return (int(rows[-1][2]) * 1024 / GB, int(rows[-1][0]) * 1024 / GB) if rows else None


def check_shared_memory(case: Case) -> Iterator[Finding]:
    """Ray's object store lies in /dev/shm, and so does what veRL hands from trainer to rollout."""
    space = free_space(case.machine, "/dev/shm")
    if space is None:
        return
    free, total = space
    found = f"{free:.1f} of {total:.1f} GB free"
    said = case.machine.env.get("RAY_OBJECT_STORE_BYTES", "")
    store = int(said) / GB if said.isdigit() else 0
    fix = "ls -lt /dev/shm shows what is left over; in a container: docker run --shm-size=64g (or --ipc=host)"
    if free < max(store, SHM_NEEDED_GB):
        yield fault("shared memory", found, f"{max(store, SHM_NEEDED_GB):.1f} GB for Ray's object store", fix)
    elif for_npu(case.machine) and free < SHM_GB:
        yield warning("shared memory", found, f"{SHM_GB} GB, or Ray's object store goes to /tmp", fix)
    else:
        yield ok("shared memory", found)


def check_open_files(case: Case) -> Iterator[Finding]:
    """Ray raises the soft limit to the hard one by itself, so the hard one counts."""
    row = re.search(r"^Max open files\s+(\S+)\s+(\S+)", case.machine.read("/proc/self/limits") or "", re.MULTILINE)
    if not row:
        return
    hard = float("inf") if row[2] == "unlimited" else int(row[2])
    found = f"{row[1]}, at most {row[2]}"
    needed = FILES if for_npu(case.machine) else CPU_FILES
    if hard < needed:
        yield warning(
            "open files",
            found,
            f"{needed}",
            f"Ray ends in `Too many open files`: ulimit -Hn {FILES} as root, or docker run --ulimit nofile={FILES}",
        )
    else:
        yield ok("open files", found, f"{needed}")


def check_disk(case: Case) -> Iterator[Finding]:
    """Room for what a run writes: at the least a checkpoint, which holds the weights again."""
    folder, model = case.machine.env.get("OUTPUTS_DIR") or ".", case.machine.env.get("MODEL_PATH")
    needed = float(NPU_DISK_GB if for_npu(case.machine) else CPU_DISK_GB)
    if model:
        index = json.loads(case.machine.read(f"{model}/model.safetensors.index.json") or "{}")
        needed = max(needed, index.get("metadata", {}).get("total_size", 0) / GB)
        yield _weights(case.machine, model, index)
    if space := free_space(case.machine, folder):
        found = f"{space[0]:.0f} GB free in {'this folder' if folder == '.' else folder}"
        fix = "set OUTPUTS_DIR to a larger disk; remove old outputs/RUN/checkpoints"
        expected = f"{needed:.0f} GB"
        yield ok("disk", found, expected) if space[0] >= needed else warning("disk", found, expected, fix)


def _weights(machine: Machine, model: str, index: dict) -> Finding:
    """Are all the files there that the index names, or the one file of a small model?"""
    needed = set(index["weight_map"].values()) if index else {"model.safetensors"}
    missing = sorted(needed - set(machine.names(model, r".*\.safetensors")))
    if not missing:
        return ok("weights", f"{len(needed)} files in {model}")
    names = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    return fault("weights", f"{model} lacks {names}", f"{len(needed)} files", "finish the download, on every node")


def check_allocator(case: Case) -> Iterator[Finding]:
    """jemalloc is preloaded in vllm-ascend's own images; a path that does not exist is ignored by ld.so."""
    preloaded = [each for each in re.split(r"[:\s]+", case.machine.env.get("LD_PRELOAD", "")) if each]
    absent = [each for each in preloaded if "/" in each and not case.machine.path(each).exists()]
    if absent:
        where = " or ".join(_jemalloc(case.machine)) or "where `ldconfig -p | grep jemalloc` says"
        yield warning("jemalloc", f"LD_PRELOAD names {absent[0]}, which is not there", "its path", f"it is {where}")
    elif any("jemalloc" in each for each in preloaded):
        yield ok("jemalloc", "preloaded")
    elif for_npu(case.machine):
        have = _jemalloc(case.machine)
        how = (
            f"export LD_PRELOAD={have[0]}" if have else "install jemalloc, then export LD_PRELOAD=.../libjemalloc.so.2"
        )
        yield note("jemalloc", "not preloaded", "preloaded", f"{how} in the env script: faster host code")


def _jemalloc(machine: Machine) -> list[str]:
    folders = ("/usr/lib64", "/usr/lib/aarch64-linux-gnu", "/usr/lib/x86_64-linux-gnu")
    return [str(Path(folder) / name) for folder in folders for name in machine.names(folder, r"libjemalloc\.so\.\d+")]
