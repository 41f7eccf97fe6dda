"""`qwen3-rl convert`: what goes wrong is said, and never leaves a checkpoint that loads."""

import collections
import io
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, MetadataIndex

from qwen3_rl.cli import main
from qwen3_rl.errors import UserError
from qwen3_rl.moe_overlap import convert as command
from qwen3_rl.moe_overlap import torch_dist
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


@pytest.mark.parametrize("value", [10**9, 10**400], ids=["10**9", "10**400"])
@pytest.mark.parametrize("key", ["num_hidden_layers", "num_experts", "num_key_value_heads", "num_attention_heads"])
def test_a_config_of_far_more_than_there_is(key, value, hf, tmp_path, capsys):
    """Nothing is made for each of what it counts."""
    config = hf / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {key: value}))
    said = refused(hf, tmp_path / "mcore", capsys)
    assert f"{config} wants over ten times the numbers in the files: layers " in said
    assert f" {value}, " in said
    assert "next: take the config.json that belongs to these weights" in said
    assert not (tmp_path / "mcore.partial").exists()


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


@pytest.fixture
def copy(converted, tmp_path) -> Path:
    """A copy of `converted` to damage."""
    return Path(shutil.copytree(converted, tmp_path / "mcore"))


def complaint(hf: Path, target: Path, capsys, *options: str) -> str:
    """The error about what is there; it says to remove that first."""
    assert converted_to(hf, target, *options) == 2
    said = capsys.readouterr().err
    assert f"next: remove {target} (or choose another --output-path), then convert again" in said
    return said


def test_two_conversions_at_once(moe, tmp_path, monkeypatch, capsys):
    """The second begins while the first writes."""
    target, write_shard, codes = tmp_path / "mcore", command.write_shard, []

    def second(*args):
        if not codes:
            codes.append(0)
            codes[0] = converted_to(moe, target)
        return write_shard(*args)

    monkeypatch.setattr(command, "write_shard", second)
    assert converted_to(moe, target, "--verify") == 0
    assert codes == [2]
    assert f"another conversion writes {target}.partial" in capsys.readouterr().err


def test_a_lock_that_went_with_the_folder(tmp_path, monkeypatch):
    """Opened before the first conversion renamed the folder, locked after."""
    (tmp_path / "partial").mkdir()
    monkeypatch.setattr(command.fcntl, "flock", lambda *args: (tmp_path / "partial").rename(tmp_path / "mcore"))
    with pytest.raises(UserError, match="another conversion wrote"), command.locked(tmp_path / "partial"):
        pass


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError()])
def test_an_interrupt_within_torch(error, moe, tmp_path, monkeypatch, capsys):
    """torch makes a RuntimeError of whatever comes out of a file's write."""

    class Stream(io.BytesIO):
        def write(self, data):
            raise error

    write_tensor = torch_dist.write_tensor
    monkeypatch.setattr(torch_dist, "write_tensor", lambda stream, *args: write_tensor(Stream(), *args))
    assert converted_to(moe, tmp_path / "mcore") == (130 if isinstance(error, KeyboardInterrupt) else 2)
    assert ("__0_0.part: OSError()" in capsys.readouterr().err) == isinstance(error, OSError)


def header_of(file: Path) -> tuple[dict, bytes]:
    data = file.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:end]), data[end:]


def with_header(file: Path, header: dict, data: bytes) -> None:
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_a_tensor_in_two_files(hf, tmp_path, capsys):
    first, second = shard(hf, 0), shard(hf, 1)
    header, data = header_of(second)
    name, entry = next((name, entry) for name, entry in header_of(first)[0].items() if name != "__metadata__")
    size = entry["data_offsets"][1] - entry["data_offsets"][0]
    with_header(second, header | {name: entry | {"data_offsets": [len(data), len(data) + size]}}, data + b"1" * size)
    assert f"{first} and {second} both hold {name}" in refused(hf, tmp_path / "mcore", capsys)


def test_offsets_that_are_no_integers(hf, tmp_path, capsys):
    file = shard(hf, 3)
    header, data = header_of(file)
    name = next(name for name in header if name != "__metadata__")
    header[name]["data_offsets"][0] = float(header[name]["data_offsets"][0])
    with_header(file, header, data)
    assert f"{file}: {name}.data_offsets.0 is" in refused(hf, tmp_path / "mcore", capsys)
    assert not (tmp_path / "mcore.partial").exists()


@pytest.mark.parametrize(
    ("first", "last", "shift", "fault"),
    [
        (1, 2, -4, "it overlaps the tensor before it"),
        (1, None, -4, "it overlaps the tensor before it"),
        (0, None, 4, "there is a hole before it"),
        (1, 2, 4, "there is a hole before it"),
        (1, None, 4, "there is a hole before it"),
    ],
)
def test_offsets_that_overlap_or_leave_holes(first, last, shift, fault, hf, tmp_path, capsys):
    """Some of a file's tensors are moved by some bytes, its data's end with the last of them."""
    file = shard(hf, 3)
    header, data = header_of(file)
    names = sorted((name for name in header if name != "__metadata__"), key=lambda name: header[name]["data_offsets"])
    due = header[names[first]]["data_offsets"][0]
    for name in names[first:last]:
        header[name]["data_offsets"] = [offset + shift for offset in header[name]["data_offsets"]]
    with_header(file, header, data if last else (data + b"0000")[: len(data) + shift])
    offsets = header[names[first]]["data_offsets"]
    said = refused(hf, tmp_path / "mcore", capsys)
    assert f"{file}: {names[first]} has data_offsets {offsets}, not from {due} on: {fault}" in said
    assert "next: download the model's files again" in said
    assert not (tmp_path / "mcore.partial").exists()


def test_two_tensors_of_the_same_bytes(hf, tmp_path, capsys):
    file = shard(hf, 3)
    header, data = header_of(file)
    one, other = (f"model.layers.2.mlp.experts.7.{part}_proj.weight" for part in ("gate", "up"))
    header[other]["data_offsets"] = header[one]["data_offsets"]
    with_header(file, header, data)
    assert f"has data_offsets {header[one]['data_offsets']}, not from" in refused(hf, tmp_path / "mcore", capsys)


@pytest.mark.parametrize("text", ['{"weight_map": {"a": 5}}', '{"weight_map": null}', "null", "[" * 100_000, "{"])
def test_a_wrong_index(text, hf, tmp_path, capsys):
    index = hf / "model.safetensors.index.json"
    index.write_text(text)
    assert f"{index}: " in refused(hf, tmp_path / "mcore", capsys)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("architectures", 5),
        *(("num_hidden_layers", value) for value in ("3", "three", 3.0, None, True, 0, -1)),
        *(("num_attention_heads", value) for value in (None, 0)),
        ("num_experts", "8"),
        ("moe_intermediate_size", None),
        ("vocab_size", None),
        ("tie_word_embeddings", "false"),
    ],
)
def test_a_wrong_type_in_the_config(key, value, hf, tmp_path, capsys):
    config = hf / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {key: value}))
    assert f"{config}: {key} is {value!r}: Input should be" in refused(hf, tmp_path / "mcore", capsys)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '{"a":' * 100_000])
def test_a_config_that_is_none(text, hf, tmp_path, capsys):
    (hf / "config.json").write_text(text)
    assert f"{hf / 'config.json'}: " in refused(hf, tmp_path / "mcore", capsys)


@pytest.mark.parametrize("stages", ["4,-1", "3,0", "a,b", "", "1,,2"])
def test_stages_that_are_no_numbers(stages, moe, tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        converted_to(moe, tmp_path / "mcore", "--layers-per-stage", stages)
    assert f"{stages!r} is not one number above 0 a stage" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["..", "a/..", "nul\0", "link"])
def test_an_output_that_cannot_be(name, moe, tmp_path, capsys):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert main(["convert", "--hf-model-path", str(moe), "--output-path", f"{tmp_path}/{name}"]) == 2
    assert f"{tmp_path}/{name}".split("\0")[0] in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [tmp_path / "link"]


def test_a_partial_folder_of_somebody_else(moe, tmp_path, capsys):
    partial = tmp_path / "mcore.partial"
    partial.mkdir()
    (partial / ".metadata").write_text("x")
    assert converted_to(moe, tmp_path / "mcore") == 2
    assert f"{partial} holds .metadata, which is no conversion's" in capsys.readouterr().err
    assert [file.read_text() for file in partial.iterdir()] == ["x"]


@pytest.mark.parametrize("text", ["", "{}", "[1]"])
def test_a_record_that_is_none(text, moe, converted, tmp_path):
    """Its file is written again."""
    partial = tmp_path / "mcore.partial"
    partial.mkdir()
    (partial / "__0_0.distcp").touch()
    (partial / "__0_0.json").write_text(text)
    assert converted_to(moe, tmp_path / "mcore", "--verify") == 0
    assert (tmp_path / "mcore" / "__0_0.distcp").read_bytes() == (converted / "__0_0.distcp").read_bytes()


@pytest.mark.parametrize("text", ["[]", "null", '{"sha256": []}', None, "{}"])
def test_a_manifest_that_is_none(text, moe, copy, capsys):
    manifest = copy / "manifest.json"
    manifest.unlink()
    if text is not None:
        manifest.write_text(text)
    assert "manifest.json" in complaint(moe, copy, capsys)


def test_another_model_is_there(dense, copy, capsys):
    assert f"{copy}: another model, with tied False, not True" in complaint(dense, copy, capsys)


def test_other_names_are_there(moe, copy, capsys):
    manifest = json.loads((copy / "manifest.json").read_text())
    del manifest["sha256"]["model.norm.weight"]
    (copy / "manifest.json").write_text(json.dumps(manifest))
    assert "differ in model.norm.weight" in complaint(moe, copy, capsys)


@pytest.mark.parametrize("name", ["common.pt", "metadata.json", "__0_objects.distcp", "__0_2.distcp"])
@pytest.mark.parametrize("how", ["gone", "cut", "other"])
def test_a_damaged_file_is_there(name, how, moe, copy, capsys):
    file = copy / name
    data = file.read_bytes()
    file.unlink()
    if how != "gone":
        file.write_bytes(data[:-1] if how == "cut" else b"0" * len(data))
    assert str(file.name) in complaint(moe, copy, capsys, "--verify")


KEY, FIRST = "decoder.layers.mlp.router.weight", MetadataIndex("decoder.final_layernorm.weight", (0,))
EXTRA = "decoder.final_layernorm._extra_state/shard_0_1"
GONE = object()
PARTS = {
    "metadata": lambda metadata: metadata.__dict__,
    "state": lambda metadata: metadata.state_dict_metadata,
    "storage": lambda metadata: metadata.storage_data,
    "entry": lambda metadata: metadata.state_dict_metadata[KEY].__dict__,
    "chunks": lambda metadata: metadata.state_dict_metadata[KEY].chunks,
    "properties": lambda metadata: metadata.state_dict_metadata[KEY].properties.__dict__,
    "info": lambda metadata: metadata.storage_data[FIRST].__dict__,
}
FAULTS = [
    ("metadata", "state_dict_metadata", (None, [1], GONE)),
    ("metadata", "storage_data", (None, {5: 5})),
    ("metadata", "mcore_data", (None, {}, GONE)),
    ("state", KEY, (None, BytesStorageMetadata(), GONE)),
    ("state", EXTRA, (GONE,)),
    ("state", 5, (BytesStorageMetadata(),)),
    ("storage", FIRST, (None, GONE)),
    ("storage", MetadataIndex(EXTRA), (GONE, _StorageInfo("__0_0.distcp", 0, 5))),
    ("entry", "size", ("x", None, torch.Size((3, 64, 8)))),
    ("entry", "chunks", (None, [], [None])),
    ("entry", "properties", (None,)),
    ("properties", "dtype", (None, torch.int32)),
    ("info", "length", (10**15, 10**30, None, 1.0, -1, GONE)),
    ("info", "offset", (-1, 0.0, 64)),
    ("info", "relative_path", (None, b"__0_0.distcp", "/etc/passwd", "../mcore/__0_0.distcp", "nowhere.distcp", ".")),
    ("info", "transform_descriptors", (["zstd"],)),
]


@pytest.mark.parametrize(
    ("part", "name", "value"), [(part, name, value) for part, name, values in FAULTS for value in values]
)
def test_a_metadata_with_a_fault(part, name, value, moe, copy, capsys):
    metadata = pickle.loads((copy / ".metadata").read_bytes())
    where = PARTS[part](metadata)
    if value is GONE:
        del where[name]
    else:
        where[name] = value
    (copy / ".metadata").write_bytes(pickle.dumps(metadata))
    complaint(moe, copy, capsys, "--verify")


@pytest.mark.parametrize("content", [5, None, {}])
def test_a_metadata_that_is_none(content, moe, copy, capsys):
    (copy / ".metadata").write_bytes(pickle.dumps(content))
    assert f"{copy}/.metadata is damaged or not ours: it is a" in complaint(moe, copy, capsys)


def test_a_metadata_written_anew(moe, copy):
    """Without a fault: what the tests of faults rest on."""
    metadata = pickle.loads((copy / ".metadata").read_bytes())
    (copy / ".metadata").write_bytes(pickle.dumps(metadata))
    assert converted_to(moe, copy, "--verify") == 0


def test_a_metadata_that_is_text(moe, copy, capsys):
    (copy / ".metadata").write_text("x")
    assert f"{copy}/.metadata is damaged or not ours: " in complaint(moe, copy, capsys)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [1],
        torch.zeros(64, dtype=torch.int32),
        torch.zeros(8),
        torch.zeros(64).to_sparse(),
        torch.zeros(64).to("meta"),
    ],
)
def test_a_block_of_another_kind(value, moe, copy, capsys):
    """Also of another dtype with the same bytes."""
    checkpoint = Checkpoint(copy)
    data = io.BytesIO()
    torch.save(value, data)
    (copy / "other.distcp").write_bytes(data.getvalue())
    checkpoint.metadata.storage_data[FIRST] = _StorageInfo("other.distcp", 0, len(data.getvalue()))
    (copy / ".metadata").write_bytes(pickle.dumps(checkpoint.metadata))
    assert f"{copy}/other.distcp" in complaint(moe, copy, capsys, "--verify")


def test_a_path_that_the_terminal_cannot_show(moe, tmp_path):
    line = [sys.executable, "-m", "qwen3_rl.cli", "convert", "--hf-model-path", moe, "--output-path", tmp_path / "模型"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u6a21\\u578b: " in done.stdout


def test_an_interrupt_while_a_command_is_imported(monkeypatch):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupted)
    assert main(["convert"]) == 130
