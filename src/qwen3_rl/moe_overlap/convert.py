"""`qwen3-rl convert`: Hugging Face weights of a Qwen3, dense or with experts, as a Megatron-Core checkpoint.

No model is built: tensors are copied one by one to where they belong, so that memory holds one tensor and what comes
out is the same for all parallel sizes. A file of the source becomes a file of the checkpoint; an interrupted conversion
goes on at the first file that is not whole. The folder gets its name when everything is in it.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import math
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from qwen3_rl import typed_json
from qwen3_rl.dry_run.model import ModelShape, read_config, shape_of
from qwen3_rl.errors import UserError
from qwen3_rl.moe_overlap import torch_dist
from qwen3_rl.moe_overlap.source import Shard, open_model
from qwen3_rl.moe_overlap.stock import Layout
from qwen3_rl.moe_overlap.torch_dist import Checkpoint, Written

ARCHITECTURES = ("Qwen3ForCausalLM", "Qwen3MoeForCausalLM")
BLOCK_OVERHEAD = 2048  # bytes that torch.save adds to a block, rounded up
MANIFEST = "manifest.json"
LOCK = "convert.lock"
ADVICE = "take the config.json that belongs to these weights"


class Record(BaseModel):
    """What lies beside a file that is whole: of which weights it is, its size, what is in it by Hugging Face name."""

    key: str
    bytes: int
    tensors: dict[str, Written]


class Manifest(BaseModel):
    """What a checkpoint was made of. ``sha256`` is that of each tensor's bytes, by Hugging Face name."""

    source: str
    model: dict[str, Any]
    sha256: dict[str, str]


def read_layout(folder: Path) -> Layout:
    """What config.json says. Raises UserError for a model that this layout does not describe."""
    file = folder / "config.json"
    if not file.is_file():
        raise UserError(f"{folder} has no config.json", "name a Hugging Face model's folder")
    config = read_config(file)
    architecture = (config.architectures or ["none"])[0]
    if architecture not in ARCHITECTURES:
        raise UserError(f"{file}: architecture {architecture}", f"convert one of {', '.join(ARCHITECTURES)}")
    moe = architecture == "Qwen3MoeForCausalLM"
    if config.attention_bias or (moe and (config.mlp_only_layers or config.decoder_sparse_step != 1)):
        raise UserError(f"{file}: attention biases or dense layers among those with experts", "these are not converted")
    shape, _ = shape_of(folder)
    if moe != bool(shape.experts):
        raise UserError(f"{file}: {architecture} with {shape.experts} experts", "take the model's own config.json")
    return Layout(shape)


def check_counts(model: ModelShape, shards: list[Shard], folder: Path) -> None:
    """Raises UserError for a config.json of a model whose layout no memory would hold. `compare` does the rest."""
    held = sum(math.prod(tensor.shape) for shard in shards for tensor in shard.tensors.values())
    if model.parameters > 10 * held:
        counts = ", ".join(f"{name} {count}" for name, count in asdict(model).items())
        raise UserError(f"{folder / 'config.json'} wants over ten times the numbers in the files: {counts}", ADVICE)


def compare(layout: Layout, shards: list[Shard], folder: Path) -> None:
    """Raises UserError naming the first tensor that config.json and the files do not agree on."""
    found = {name: tensor for shard in shards for name, tensor in shard.tensors.items() if name not in layout.ignored}
    if missing := sorted(layout.tensors.keys() - found.keys()):
        raise UserError(f"{folder}: config.json wants {missing[0]} ({len(missing)} such), the files lack it", ADVICE)
    if extra := sorted(found.keys() - layout.tensors.keys()):
        raise UserError(f"{folder}: the files hold {extra[0]} ({len(extra)} such), config.json wants none", ADVICE)
    for name, tensor in found.items():
        if tensor.shape != layout.tensors[name].shape:
            wanted = layout.tensors[name].shape
            raise UserError(f"{folder}: {name} has the shape {tensor.shape}, config.json wants {wanted}", ADVICE)


def check_fit(model: ModelShape, args: argparse.Namespace) -> None:
    """Raises UserError if the model cannot be divided as a job means to: the checkpoint itself fits any division."""
    if min(args.tp_size, args.ep_size, args.pp_size) < 1:
        raise UserError("a parallel size is below 1", "give --tp-size, --pp-size and --ep-size of at least 1")
    parts = [("tp-size", args.tp_size, "key-value heads", model.kv_heads)]
    parts += [("tp-size", args.tp_size, "vocabulary", model.vocab)]
    if model.experts:
        parts += [("ep-size", args.ep_size, "experts", model.experts)]
    elif args.ep_size > 1:
        raise UserError(f"--ep-size {args.ep_size}, but the model has no experts", "leave --ep-size out")
    for option, size, name, count in parts:
        if count % size:
            raise UserError(f"--{option} {size} does not divide the model's {count} {name}", "take another size")
    stages = args.layers_per_stage
    if stages and (len(stages) != args.pp_size or sum(stages) != model.layers):
        raise UserError(
            f"--layers-per-stage {','.join(map(str, stages))}: {len(stages)} stages with {sum(stages)} layers; "
            f"there are --pp-size {args.pp_size} and the model's {model.layers}",
            "name one number a stage",
        )
    if not stages and model.layers % args.pp_size:
        raise UserError(f"--pp-size {args.pp_size} does not divide {model.layers} layers", "give --layers-per-stage")


def record_of(file: Path, shard: Shard, key: str) -> dict[str, Written] | None:
    """What an earlier run wrote into ``file`` from this very shard; None if it has to be written."""
    record = file.with_suffix(".json")
    if not (file.is_file() and record.is_file()):
        return None
    try:
        known = Record.model_validate_json(record.read_bytes())
    except ValidationError:
        return None
    if known.key != key:
        raise UserError(
            f"{file.parent} was begun from other weights than {shard.file}", f"remove {file.parent} to begin anew"
        )
    return known.tensors if file.stat().st_size == known.bytes else None


def write_shard(file: Path, shard: Shard, layout: Layout, key: str) -> None:
    """Writes ``file`` and the record that says it is whole."""
    part = file.with_suffix(".part")
    written = {}
    try:
        with part.open("wb") as stream:
            for name, stored in sorted(shard.tensors.items(), key=lambda item: item[1].begin):
                if name not in layout.ignored:
                    written[name] = torch_dist.write_tensor(stream, stored.read(), layout.tensors[name])
            stream.flush()
            os.fsync(stream.fileno())
    except (OSError, RuntimeError) as error:  # torch turns a failed write into the latter
        reason = torch_dist.why(error)
        raise UserError(f"{shard.file} -> {part}: {reason}", "mend that, then run the same command again") from error
    record = Record(key=key, bytes=part.stat().st_size, tensors=written)
    part.replace(file)
    torch_dist.put(file.with_suffix(".json"), record.model_dump_json().encode())


def check_space(folder: Path, shards: list[Shard], layout: Layout) -> None:
    blocks = sum(
        len(layout.tensors[name].places) for shard in shards for name in shard.tensors if name in layout.tensors
    )
    needed = sum(shard.file.stat().st_size for shard in shards) + (blocks + 64) * BLOCK_OVERHEAD
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise UserError(
            f"{folder} has {free / 1e9:.2f} GB free, the checkpoint needs {needed / 1e9:.2f} GB more",
            "free some space, or name another folder with --output-path; what is written is kept",
        )


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps other conversions off ``folder``. Raises UserError if one writes it."""
    file = folder / LOCK
    with file.open("ab") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"another conversion writes {folder}", "wait for its end") from error
        if not (file.exists() and os.path.samestat(file.stat(), os.fstat(stream.fileno()))):
            raise UserError(f"another conversion wrote {folder}", "run the same command again")
        yield


def convert(source: Path, target: Path, layout: Layout, shards: list[Shard]) -> None:
    """Writes ``target``, which appears when it is whole; ``target``.partial is what a killed run leaves."""
    partial = target.with_name(target.name + ".partial")
    partial.mkdir(parents=True, exist_ok=True)
    names = sorted(file.name for file in partial.iterdir())
    if names and not any(name == LOCK or name.startswith("__0_") for name in names):
        raise UserError(f"{partial} holds {names[0]}, which is no conversion's", f"move {partial} away")
    with locked(partial):
        if target.exists():
            raise UserError(f"{target}: another conversion has just written it", "run the same command again")
        _convert(source, target, partial, layout, shards)


def _convert(source: Path, target: Path, partial: Path, layout: Layout, shards: list[Shard]) -> None:
    (partial / ".metadata").unlink(missing_ok=True)
    config = hashlib.sha256(json.dumps(asdict(layout.model), sort_keys=True).encode()).hexdigest()
    parts = [(partial / f"__0_{n}.distcp", shard, f"{config} {shard.identity}") for n, shard in enumerate(shards)]
    todo = [part for part in parts if record_of(*part) is None]
    if len(todo) < len(shards):
        print(f"{partial}: {len(shards) - len(todo)} of {len(shards)} files are there already")
    check_space(partial, [shard for _, shard, _ in todo], layout)
    for file, shard, key in todo:
        write_shard(file, shard, layout, key)
        print(f"{shard.file.name} -> {file.name}", flush=True)
    files = {file.name: record_of(file, shard, key) for file, shard, key in parts}
    tensors = {name: one.sha256 for written in files.values() for name, one in written.items()}
    manifest = {"source": str(source), "model": asdict(layout.model), "sha256": dict(sorted(tensors.items()))}
    torch_dist.put(partial / MANIFEST, json.dumps(manifest, indent=1).encode())
    torch_dist.finish(partial, files, contents(layout, shards))
    partial.replace(target)
    for file in files:
        (target / file).with_suffix(".json").unlink()
    (target / LOCK).unlink()


def contents(layout: Layout, shards: list[Shard]) -> torch_dist.State:
    dtypes = {name: stored.dtype for shard in shards for name, stored in shard.tensors.items()}
    tensors = ((tensor, dtypes[name]) for name, tensor in layout.tensors.items())
    return torch_dist.contents(tensors, layout.extra_states())


def open_checkpoint(target: Path, layout: Layout, shards: list[Shard]) -> tuple[Checkpoint, Manifest]:
    """Raises UserError if ``target`` is anything but a whole checkpoint of such a model; weights are not read."""
    if not (target / ".metadata").is_file():
        raise UserError(f"{target} exists and is no finished checkpoint", torch_dist.again(target))
    file, advice = target / MANIFEST, torch_dist.again(target)
    if not file.is_file():
        raise UserError(f"{target} has no {MANIFEST}: it is not of this command", advice)
    manifest = typed_json.parse(Manifest, file, file.read_bytes(), advice)
    for name, value in asdict(layout.model).items():
        if manifest.model.get(name) != value:
            raise UserError(f"{target}: another model, with {name} {manifest.model.get(name)}, not {value}", advice)
    if names := sorted(manifest.sha256.keys() ^ layout.tensors.keys()):
        raise UserError(f"{file}: it and the model differ in {names[0]} ({len(names)} such)", advice)
    checkpoint = Checkpoint(target)
    checkpoint.compare(contents(layout, shards))
    return checkpoint, manifest


def differences(checkpoint: Checkpoint, manifest: Manifest, layout: Layout, shards: list[Shard]) -> Iterator[str]:
    """Which tensors, read as they lie there, differ from the source's bytes or from the manifest."""
    for shard in shards:
        for name, stored in shard.tensors.items():
            if name in layout.ignored:
                continue
            kept = torch_dist.sha256(checkpoint.read(layout.tensors[name], stored.dtype))
            if kept != torch_dist.sha256(stored.read()):
                yield f"{name}: the checkpoint holds other numbers than {stored.file.name}"
            elif kept != manifest.sha256[name]:
                yield f"{name}: the manifest has another checksum"


def stages(text: str) -> list[int]:
    """The layers of each stage. Raises argparse's error."""
    numbers = text.split(",")
    if not all(number.isdecimal() and int(number) for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} is not one number above 0 a stage, as in 2,1")
    return [int(number) for number in numbers]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    # The names of veRL's converter_hf_to_mcore.py are taken too.
    parser.add_argument("--hf-model-path", "--hf_model_path", type=Path, required=True, help="a Hugging Face folder")
    parser.add_argument("--output-path", "--output_path", type=Path, required=True, help="the checkpoint's folder")
    parser.add_argument("--verify", action="store_true", help="read the checkpoint back and compare every tensor")
    job = parser.add_argument_group("a job's sizes", "checked against the model; the checkpoint fits them all alike")
    job.add_argument("--tp-size", "--tp_size", type=int, default=1)
    job.add_argument("--ep-size", "--ep_size", type=int, default=1)
    job.add_argument("--pp-size", "--pp_size", type=int, default=1)
    job.add_argument("--layers-per-stage", type=stages, metavar="N,N,...", help="where they are not equal")
    parser.add_argument(
        "--use_cpu_initialization", action="store_true", help="as in veRL's script; this one needs no accelerator ever"
    )


def check_target(target: Path) -> None:
    """Raises UserError for what cannot become a folder's name."""
    if "\0" in str(target) or target.name in ("", ".."):
        raise UserError(f"--output-path {str(target)!r} does not end in a name", "name the checkpoint's folder")
    if target.is_symlink() and not target.exists():
        raise UserError(f"{target} is a link to nothing", torch_dist.again(target))


def run(args: argparse.Namespace) -> int:
    source, target = args.hf_model_path, args.output_path
    check_target(target)
    layout = read_layout(source)
    check_fit(layout.model, args)
    shards = open_model(source)
    check_counts(layout.model, shards, source)
    compare(layout, shards, source)
    if new := not target.exists():
        convert(source, target, layout, shards)
    known = open_checkpoint(target, layout, shards)
    print(f"{target}: {len(layout.tensors)} tensors" if new else f"{target}: already there")
    if not args.verify:
        return 0
    found = list(differences(*known, layout, shards))
    if not found:
        print(f"{target}: verified")
        return 0
    for line in found:
        print(line, file=sys.stderr)
    print(f"{target}: {len(found)} of {len(layout.tensors)} tensors differ from {source}")
    print(f" next: {torch_dist.again(target)}", file=sys.stderr)
    return 1
