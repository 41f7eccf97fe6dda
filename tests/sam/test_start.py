"""What a worker meets: no framework is imported, and the second start compiles nothing."""

import os
import subprocess
import sys

USE = """
import sys
from qwen3_rl.sam import SamDrafter, kernels
drafter = SamDrafter(3)
drafter.add_request("a", [1, 2, 3])
assert drafter.propose_lists(["a"], [[1]]) == [[2, 3, 1]]
heavy = {"torch", "vllm", "verl", "ray", "transformers", "matplotlib"} & set(sys.modules)
assert not heavy, heavy
print(sum(kernels.run_batch.stats.cache_misses.values()), sum(kernels.run_batch.stats.cache_hits.values()))
"""


def start(folder):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    run = subprocess.run([sys.executable, "-c", USE], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def test_the_second_start_compiles_nothing(tmp_path):
    assert start(tmp_path) == ["1", "0"]
    assert start(tmp_path) == ["0", "1"]


MADE = """
from types import SimpleNamespace
from qwen3_rl.sam import drafter, kernels
from qwen3_rl.sam.proposer import SamProposer
speculative = SimpleNamespace(num_speculative_tokens=3, sam_config=None)
SamProposer(SimpleNamespace(speculative_config=speculative, model_config=SimpleNamespace(max_model_len=64)))
called = [getattr(kernels, name) for name in ("begin", "end_prompt", "feed", "finish", "reread", "run_batch", "trim")]
print([used.__name__ for used in (*called, drafter.open_group, drafter.close_group) if not used.signatures])
"""


def test_the_engine_compiles_nothing_after_its_start():
    assert subprocess.check_output([sys.executable, "-c", MADE], text=True) == "[]\n"


def test_cache_folder_falls_back(tmp_path, monkeypatch):
    import numba

    from qwen3_rl.sam import _jit

    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setattr(_jit, "_HERE", blocked)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert _jit.cache_dir().is_relative_to(tmp_path / "cache" / "qwen3_rl")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert _jit.cache_dir().parent.parent == tmp_path
