"""`qwen3-rl convert`: what goes wrong is said, and never leaves a checkpoint that loads."""

import collections
import json
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from qwen3_rl.cli import main
from qwen3_rl.errors import UserError
from qwen3_rl.moe_overlap import convert as command
from qwen3_rl.moe_overlap.torch_dist import Checkpoint
from tests.moe_overlap.tiny import make_model

# Dies in the middle of the third file, as a machine does.
KILLED = """
import os, signal, sys
from qwen3_rl.cli import main
from qwen3_rl.moe_overlap import convert, torch_dist
files = []
write_shard, write_tensor = convert.write_shard, torch_dist.write_tensor
def counted(*args):
    files.append(0)
    return write_shard(*args)
def dies(*args):
    written = write_tensor(*args)
    files[-1] += 1
    if len(files) == 3 and files[-1] == 5:
        args[0].flush()
        os.kill(os.getpid(), signal.SIGKILL)
    return written
convert.write_shard, torch_dist.write_tensor = counted, dies
main(["convert", "--hf-model-path", sys.argv[1], "--output-path", sys.argv[2]])
"""


@pytest.fixture
def hf(moe, tmp_path) -> Path:
    """A copy of `moe` to damage."""
    return Path(shutil.copytree(moe, tmp_path / "hf"))


def shard(hf: Path, number: int) -> Path:
    return sorted(hf.glob("*.safetensors"))[number]


def converted_to(hf: Path, target: Path, *options: str) -> int:
    return main(["convert", "--hf-model-path", str(hf), "--output-path", str(target), *options])


def refused(hf: Path, target: Path, capsys, *options: str) -> str:
    """The error; nothing that loads is left."""
    assert converted_to(hf, target, *options) == 2
    assert not target.exists()
    assert not list(target.parent.glob("mcore*/.metadata"))
    return capsys.readouterr().err


def test_verify_agrees(moe, converted, capsys):
    assert converted_to(moe, converted, "--verify") == 0
    assert "already there" in capsys.readouterr().out


def test_a_killed_conversion_goes_on(moe, converted, tmp_path, capsys):
    target, partial = tmp_path / "mcore", tmp_path / "mcore.partial"
    done = subprocess.run([sys.executable, "-c", KILLED, moe, target], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not target.exists()
    assert not (partial / ".metadata").exists()
    kept = {file.name: file.stat().st_mtime_ns for file in partial.glob("*.distcp")}
    assert len(kept) == 2
    assert converted_to(moe, target, "--verify") == 0
    assert f"2 of {len(list(moe.glob('*.safetensors')))} files are there already" in capsys.readouterr().out
    assert {name: (target / name).stat().st_mtime_ns for name in kept} == kept
    names = {file.name for file in target.iterdir()}
    assert names == {file.name for file in converted.iterdir()}
    assert all((target / name).read_bytes() == (converted / name).read_bytes() for name in names)


def test_other_weights_do_not_go_on(moe, tmp_path, capsys):
    """A folder begun from another model of the same shape."""
    target, partial = tmp_path / "mcore", tmp_path / "mcore.partial"
    subprocess.run([sys.executable, "-c", KILLED, moe, target], capture_output=True, check=False)
    other = make_model(tmp_path / "hf", seed=1)
    assert f"{partial} was begun from other weights" in refused(other, target, capsys)


def test_a_truncated_file(hf, tmp_path, capsys):
    file = shard(hf, 1)
    size = file.stat().st_size
    with file.open("r+b") as stream:
        stream.truncate(size - 1)
    assert f"{file} has {size - 1} bytes, its header speaks of {size}" in refused(hf, tmp_path / "mcore", capsys)


def test_a_file_truncated_in_its_header(hf, tmp_path, capsys):
    file = shard(hf, 1)
    file.write_bytes(file.read_bytes()[:100])
    assert f"{file} is truncated" in refused(hf, tmp_path / "mcore", capsys)


def test_a_missing_shard(hf, tmp_path, capsys):
    file = shard(hf, 2)
    file.unlink()
    assert f"{file} is missing" in refused(hf, tmp_path / "mcore", capsys)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"moe_intermediate_size": 32}, "has the shape (64, 48), config.json wants (64, 32)"),
        ({"num_hidden_layers": 2}, "the files hold model.layers.2."),
        ({"num_experts": 16}, "config.json wants model.layers.0.mlp.experts.10."),
        ({"architectures": ["LlamaForCausalLM"]}, "architecture LlamaForCausalLM"),
        ({"architectures": ["Qwen3ForCausalLM"]}, "Qwen3ForCausalLM with 8 experts"),
        ({"mlp_only_layers": [0]}, "dense layers among those with experts"),
    ],
)
def test_a_wrong_config(change, said, hf, tmp_path, capsys):
    config = hf / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | change))
    assert said in refused(hf, tmp_path / "mcore", capsys)


def test_too_little_disk(moe, tmp_path, capsys, monkeypatch):
    usage = collections.namedtuple("usage", "total used free")
    monkeypatch.setattr(command.shutil, "disk_usage", lambda path: usage(0, 0, 900_000))
    assert "has 0.00 GB free, the checkpoint needs 0.00 GB more" in refused(moe, tmp_path / "mcore", capsys)
    assert not list(tmp_path.glob("mcore.partial/*.distcp"))


def test_a_disk_that_fills_up(moe, tmp_path):
    """As the kernel says it in the middle of a file: here a limit on a file's size."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000));"
    command_line = "import sys; from qwen3_rl.cli import main; sys.exit(main(sys.argv[1:]))"
    options = ["convert", "--hf-model-path", moe, "--output-path", tmp_path / "mcore"]
    done = subprocess.run([sys.executable, "-c", limit + command_line, *options], capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "__0_0.part: [Errno 27] File too large" in done.stderr
    assert not (tmp_path / "mcore").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tp-size", "0"], "a parallel size is below 1"),
        (["--tp-size", "4"], "--tp-size 4 does not divide the model's 2 key-value heads"),
        (["--ep-size", "3"], "--ep-size 3 does not divide the model's 8 experts"),
        (["--pp-size", "2"], "--pp-size 2 does not divide 3 layers"),
        (["--pp-size", "2", "--layers-per-stage", "1,1"], "2 stages with 2 layers"),
    ],
)
def test_a_job_that_the_model_does_not_fit(options, said, moe, tmp_path, capsys):
    assert said in refused(moe, tmp_path / "mcore", capsys, *options)


def test_verify_finds_a_flipped_bit(moe, converted, tmp_path, capsys):
    target = Path(shutil.copytree(converted, tmp_path / "mcore"))
    file = target / "__0_1.distcp"
    damaged = bytearray(file.read_bytes())
    start = damaged.index(b"/data/0") + 200  # within a tensor's numbers
    damaged[start] ^= 1
    file.write_bytes(damaged)
    code = converted_to(moe, target, "--verify")
    said = capsys.readouterr()
    assert code in (1, 2)
    assert "differs" in said.out or "other numbers than" in said.err or "cannot be read" in said.err


def test_verify_finds_other_weights(converted, tmp_path, capsys):
    other = make_model(tmp_path / "hf", seed=1)
    assert converted_to(other, converted, "--verify") == 1
    assert "model.embed_tokens.weight: the checkpoint holds other numbers" in capsys.readouterr().err


def test_a_pickle_that_runs_something_is_refused(converted, tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    (tmp_path / ".metadata").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(UserError, match="does not belong there"):
        Checkpoint(tmp_path)
    assert not (tmp_path / "ran").exists()
