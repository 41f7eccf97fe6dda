"""Caches from before a change of CANN: found, named, and removed together with nothing else."""

import os
from pathlib import Path

import pytest
from doctor_lab import Change, bad, doctor, findings, machine

from qwen3_rl.doctor.caches import clean
from qwen3_rl.doctor.machine import Machine, Recording
from qwen3_rl.doctor.npu_smi import for_npu

OLD = 1_600_000_000
INFO = "usr/local/Ascend/cann/aarch64-linux/ascend_toolkit_install.info"


def fill(folder: Path, when: float, ninja: str = "") -> Path:
    folder.mkdir(parents=True)
    (folder / "build.ninja").write_text(ninja)
    (folder / "kernel.o").write_text("x")
    for name in ("build.ninja", "kernel.o"):
        os.utime(folder / name, (when, when))
    return folder


@pytest.fixture
def npu(tmp_path) -> Path:
    """A healthy machine whose CANN was installed at a known time."""
    folder = machine("healthy", tmp_path / "machine")
    os.utime(folder / INFO, (OLD + 100, OLD + 100))
    return folder


def test_a_cache_from_before_this_cann_is_named(npu):
    cache = fill(npu / "root" / "atc_data" / "kernel_cache", OLD)
    found = bad(findings(npu))["kernel caches"]
    assert str(cache) in found.found
    assert "--clean-caches" in found.fix


def test_a_cache_of_this_cann_is_well(npu):
    fill(npu / "root" / ".cache" / "vllm" / "torch_compile_cache", OLD + 200)
    assert bad(findings(npu)) == {}


def test_tritons_cache_goes_where_npus_are(npu):
    cache, said = fill(npu / "root" / ".triton" / "cache", OLD), []
    clean(Recording(npu), said.append)
    assert not cache.exists()
    assert said[0].startswith(f"removing {cache} (Triton kernels, ")


def test_no_cleaning_in_a_recording(npu):
    done = doctor("--clean-caches", "--recording", str(npu))
    assert done.returncode == 2
    assert "not for a recording" in done.stderr


@pytest.mark.skipif(for_npu(Machine()), reason="this machine has NPUs")
def test_cleaning_removes_them_by_name_and_nothing_else(tmp_path):
    home, shared = tmp_path / "home", tmp_path / "shared"
    gone = [
        fill(home / "atc_data" / "kernel_cache", OLD),
        fill(home / ".cache" / "vllm" / "torch_compile_cache", OLD),
        fill(shared / "kernel_cache", OLD),
        fill(home / ".cache" / "torch_extensions" / "py311_cpu" / "grouped_matmul", OLD, "ldflags = -lascendcl"),
    ]
    kept = [
        fill(home / ".triton" / "cache", OLD),  # of another device: this machine has no NPU
        fill(home / ".cache" / "torch_extensions" / "py311_cpu" / "other", OLD, "ldflags = -lc10"),
        fill(home / "atc_data" / "mine", OLD),
        fill(home / ".cache" / "huggingface", OLD),
        fill(home / ".cache" / "vllm" / "assets", OLD),
        fill(shared / "aoe_data", OLD),
        fill(tmp_path / "triton", OLD),
    ]
    done = doctor(
        "--clean-caches", HOME=str(home), ASCEND_CACHE_PATH=str(shared), TRITON_CACHE_DIR=str(tmp_path / "triton")
    )
    assert done.returncode == 0, done.stderr
    for cache in gone:
        assert f"removing {cache} " in done.stdout
        assert not cache.exists()
    assert all((folder / "kernel.o").exists() for folder in kept)
    assert len(done.stdout.splitlines()) == len(gone)


def test_cleaning_follows_no_link(tmp_path):
    home, precious = tmp_path / "home", fill(tmp_path / "precious", OLD)
    inside = fill(home / ".cache" / "vllm" / "torch_compile_cache", OLD)
    (inside / "link").symlink_to(precious)
    (home / "atc_data").mkdir()
    (home / "atc_data" / "kernel_cache").symlink_to(precious)
    done = doctor("--clean-caches", HOME=str(home))
    assert done.returncode == 0, done.stderr
    assert (precious / "kernel.o").exists()
    assert not inside.exists()
    assert (home / "atc_data" / "kernel_cache").is_symlink()


def test_nothing_to_clean(tmp_path):
    done = doctor("--clean-caches", HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "no kernel or graph caches here\n")


def test_a_recorded_machines_own_cache_variable(npu, tmp_path):
    change = Change(env={"ASCEND_CACHE_PATH": "/cache"})
    folder = machine("healthy", tmp_path / "other", change)
    os.utime(folder / INFO, (OLD + 100, OLD + 100))
    fill(folder / "cache" / "kernel_cache", OLD)
    assert "CANN kernels" in bad(findings(folder, change))["kernel caches"].found
