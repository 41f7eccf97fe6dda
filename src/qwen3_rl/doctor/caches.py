"""Compiled kernels and graphs that CANN, Triton and vLLM keep: out of date after a change of CANN."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from qwen3_rl.doctor.findings import Case, Finding, note, ok, warning
from qwen3_rl.doctor.machine import Machine
from qwen3_rl.doctor.npu_smi import for_npu
from qwen3_rl.doctor.versions import toolkit

LOOKED_AT = 5000  # files of a cache


@dataclass(frozen=True)
class Cache:
    """A folder that its owner fills again by itself."""

    owner: str
    path: Path


def caches(machine: Machine) -> list[Cache]:
    """Those that are there. Each path ends in a name that only its owner uses: a variable may point to anything.

    So a folder that TRITON_CACHE_DIR names is not among them, and without NPUs Triton's is another device's.
    """
    env, home = machine.env, machine.home
    # CANN's and torch_npu's references of environment variables name these three
    data = [env.get("ACL_OP_COMPILER_CACHE_DIR"), env.get("ASCEND_CACHE_PATH"), f"{home}/atc_data"]
    vllm = env.get("VLLM_CACHE_ROOT") or f"{home}/.cache/vllm"
    found = [Cache("CANN kernels", machine.path(f"{folder}/kernel_cache")) for folder in data if folder]
    found += [
        Cache("vLLM graphs", machine.path(f"{vllm}/{name}")) for name in ("torch_compile_cache", "torch_aot_compile")
    ]
    if for_npu(machine):
        found.append(Cache("Triton kernels", machine.path(f"{home}/.triton/cache")))
    found += _extensions(machine.path(env.get("TORCH_EXTENSIONS_DIR") or f"{home}/.cache/torch_extensions"))
    return [cache for cache in found if cache.path.is_dir() and not cache.path.is_symlink()]


def _extensions(folder: Path) -> list[Cache]:
    """The operators that MindSpeed has compiled with torch: those builds that link with CANN."""
    builds = [*folder.glob("*/build.ninja"), *folder.glob("*/*/build.ninja")]
    return [
        Cache("operators compiled for CANN", build.parent)
        for build in sorted(builds)
        if "-lascendcl" in build.read_text(errors="replace")
    ]


def stale(machine: Machine) -> list[Cache]:
    """The caches with a file from before the installed CANN came."""
    if (found := toolkit(machine)) is None:
        return []
    installed = machine.path(found[1]).stat().st_mtime
    return [cache for cache in caches(machine) if any(time < installed for time in _times(cache))]


def _times(cache: Cache) -> Iterator[float]:
    files = (path for path in cache.path.rglob("*") if path.is_file() and not path.is_symlink())
    return (path.stat().st_mtime for path in islice(files, LOOKED_AT))


def check_caches(case: Case) -> Iterator[Finding]:
    if not for_npu(case.machine):
        yield note("kernel caches", "no NPU here")
    elif old := stale(case.machine):
        yield warning(
            "kernel caches",
            "older than CANN: " + ", ".join(f"{cache.path} ({cache.owner})" for cache in old),
            "made with this CANN",
            "qwen3-rl doctor --clean-caches removes them",
        )
    else:
        yield ok("kernel caches", "none from before this CANN")


def clean(machine: Machine, say) -> None:
    """Name every cache, then remove them all, stale or not. Raises OSError where one cannot be removed."""
    found = caches(machine)
    for cache in found:
        size = sum(path.lstat().st_size for path in cache.path.rglob("*"))
        say(f"removing {cache.path} ({cache.owner}, {size / 1e6:.0f} MB)")
    if not found:
        say("no kernel or graph caches here")
    for cache in found:
        shutil.rmtree(cache.path)
