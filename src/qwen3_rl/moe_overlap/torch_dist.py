"""Megatron-Core's checkpoint format `torch_dist`, written and read one tensor at a time, without a model or processes.

It is torch.distributed.checkpoint's format (files *.distcp with torch.save's of single blocks, `.metadata`, a pickle
that says where which block lies) beside `metadata.json` and `common.pt` (megatron-core 0.12.1, dist_checkpointing/).
"""

import hashlib
import io
import json
import os
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from qwen3_rl.errors import UserError
from qwen3_rl.moe_overlap.stock import Place, Tensor

FORMAT = {"sharded_backend": "torch_dist", "sharded_backend_version": 1}
FORMAT |= {"common_backend": "torch", "common_backend_version": 1}
OBJECTS = "__0_objects.distcp"


@dataclass(frozen=True)
class Block:
    """One block as it was written: the bytes ``begin:begin + length`` of a file are its torch.save."""

    key: str
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    block: tuple[int, ...]
    dtype: str
    begin: int
    length: int


@dataclass(frozen=True)
class Written:
    """A Hugging Face tensor as it was written: the sha256 of its bytes, and its blocks."""

    sha256: str
    blocks: list[Block]


def write_tensor(stream: io.BufferedIOBase, tensor: torch.Tensor, where: Tensor) -> Written:
    blocks = []
    for place in where.places:
        begin = stream.tell()
        # A copy where it is a part: torch.save writes the whole storage behind a view.
        rows = tensor if place.end - place.begin == len(tensor) else tensor[place.begin : place.end].clone()
        torch.save(rows.view(place.block), stream)
        dtype = str(tensor.dtype).removeprefix("torch.")
        blocks.append(Block(place.key, place.shape, place.offset, place.block, dtype, begin, stream.tell() - begin))
    return Written(sha256(tensor), blocks)


def sha256(tensor: torch.Tensor) -> str:
    """Of a tensor's bytes in row order."""
    return hashlib.sha256(tensor.contiguous().view(-1).view(torch.uint8).numpy()).hexdigest()


def to_json(written: dict[str, Written]) -> dict:
    return {name: asdict(one) for name, one in written.items()}


def from_json(entries: dict) -> dict[str, Written]:
    def block(entry: dict) -> Block:
        return Block(**{key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()})

    return {name: Written(one["sha256"], [block(entry) for entry in one["blocks"]]) for name, one in entries.items()}


def put(path: Path, data: bytes) -> None:
    """A file that is there whole or not at all, also after a power cut."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)


def finish(folder: Path, files: dict[str, dict[str, Written]], objects: Iterable[str]) -> None:
    """What makes a folder of blocks a checkpoint; ``.metadata``, without which nothing loads, comes last.

    ``files`` says for each file what is in it; ``objects`` are keys of objects that are None.
    """
    none = io.BytesIO()
    torch.save([None], none)  # megatron keeps an object as the list of those with its key
    put(folder / OBJECTS, none.getvalue())
    state: dict = {}
    storage: dict = {}
    for file, written in files.items():
        for block in (block for one in written.values() for block in one.blocks):
            entry = state.setdefault(block.key, _no_chunks(block))
            entry.chunks.append(ChunkStorageMetadata(torch.Size(block.offset), torch.Size(block.block)))
            storage[MetadataIndex(block.key, block.offset)] = _StorageInfo(file, block.begin, block.length)
    for key in objects:
        state[key] = BytesStorageMetadata()
        storage[MetadataIndex(key)] = _StorageInfo(OBJECTS, 0, len(none.getvalue()))
    metadata = Metadata(state, storage_data=storage, storage_meta=StorageMeta())
    metadata.mcore_data = {key: {} for key, entry in state.items() if isinstance(entry, TensorStorageMetadata)}
    common = io.BytesIO()
    torch.save({}, common)
    put(folder / "common.pt", common.getvalue())
    put(folder / "metadata.json", json.dumps(FORMAT).encode())
    put(folder / ".metadata", pickle.dumps(metadata))


def _no_chunks(block: Block) -> TensorStorageMetadata:
    properties = TensorProperties(dtype=getattr(torch, block.dtype))
    return TensorStorageMetadata(properties, torch.Size(block.shape), [])


class _Unpickler(pickle.Unpickler):
    """Makes what a `.metadata` holds and nothing else: a pickle can run anything."""

    ALLOWED = frozenset(
        {("torch", "Size"), ("torch.serialization", "_get_layout"), ("pathlib", "PosixPath")}
        | {("torch.distributed.checkpoint.filesystem", "_StorageInfo")}
        | {
            ("torch.distributed.checkpoint.metadata", name)
            for name in (
                *("Metadata", "MetadataIndex", "StorageMeta", "TensorProperties", "_MEM_FORMAT_ENCODING"),
                *("TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata"),
            )
        }
    )

    def find_class(self, module: str, name: str):
        if name == "MCoreMetadata":  # Megatron's own has one field more
            return Metadata
        if (module, name) in self.ALLOWED:
            return super().find_class(module, name)
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        raise pickle.UnpicklingError(f"{module}.{name} does not belong there")


class Checkpoint:
    """A checkpoint on disk. Raises UserError where it is none, or damaged."""

    def __init__(self, folder: Path):
        self.folder = folder
        file = folder / ".metadata"
        try:
            self.metadata: Metadata = _Unpickler(io.BytesIO(file.read_bytes())).load()
        except FileNotFoundError as error:
            raise UserError(f"{folder} is no distributed checkpoint: it has no .metadata", "convert again") from error
        except Exception as error:  # unpickling damaged bytes raises nearly anything
            raise UserError(f"{file} cannot be read: {error}", "convert again") from error

    def sizes(self) -> Iterator[tuple[str, int, int]]:
        """(key, elements of the whole tensor, elements of its blocks) of every tensor."""
        for key, entry in self.metadata.state_dict_metadata.items():
            if isinstance(entry, TensorStorageMetadata):
                yield key, entry.size.numel(), sum(chunk.sizes.numel() for chunk in entry.chunks)

    def read(self, where: Tensor) -> torch.Tensor:
        """The Hugging Face tensor at ``where``. Raises UserError naming the key and file."""
        return torch.cat([self._block(place).view(-1, *where.shape[1:]) for place in where.places])

    def _block(self, place: Place) -> torch.Tensor:
        info = self.metadata.storage_data.get(MetadataIndex(place.key, place.offset))
        entry = self.metadata.state_dict_metadata.get(place.key)
        if info is None or entry is None or tuple(entry.size) != place.shape:
            raise UserError(
                f"{self.folder} has no {place.key} of shape {place.shape} at {place.offset}", "convert again"
            )
        file = self.folder / info.relative_path
        try:
            with file.open("rb") as stream:
                stream.seek(info.offset)
                data = stream.read(info.length)
            block = torch.load(io.BytesIO(data), weights_only=True)
        except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
            raise UserError(
                f"{file}: {place.key} at {place.offset} cannot be read: {error}", "convert again"
            ) from error
        if tuple(block.shape) != place.block:
            raise UserError(
                f"{file}: {place.key} at {place.offset} has the shape {tuple(block.shape)}", "convert again"
            )
        return block
