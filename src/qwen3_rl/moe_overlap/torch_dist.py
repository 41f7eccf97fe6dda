"""Megatron-Core's checkpoint format `torch_dist`, written and read one tensor at a time, without a model or processes.

It is torch.distributed.checkpoint's format (files *.distcp with torch.save's of single blocks, `.metadata`, a pickle
that says where which block lies) beside `metadata.json` and `common.pt` (megatron-core 0.12.1, dist_checkpointing/).
"""

import hashlib
import io
import json
import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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
State = dict[str, TensorStorageMetadata | BytesStorageMetadata]


@dataclass(frozen=True)
class Block:
    """One block as it was written: the bytes ``begin:begin + length`` of a file are its torch.save."""

    key: str
    offset: tuple[int, ...]
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
        blocks.append(Block(place.key, place.offset, begin, stream.tell() - begin))
    return Written(sha256(tensor), blocks)


def sha256(tensor: torch.Tensor) -> str:
    """Of a tensor's bytes in row order."""
    return hashlib.sha256(tensor.contiguous().view(-1).view(torch.uint8).numpy()).hexdigest()


def why(error: Exception) -> str:
    """The reason behind torch's RuntimeError for whatever fails in a file. Raises KeyboardInterrupt if it was that."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            raise cause
        if isinstance(cause, OSError):
            return str(cause) or repr(cause)
        cause = cause.__context__
    return str(error) or repr(error)


def again(folder: Path) -> str:
    """The next step where a checkpoint is not what it should be."""
    return f"remove {folder} (or choose another --output-path), then convert again"


def put(path: Path, data: bytes) -> None:
    """A file that is there whole or not at all, also after a power cut."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)


def contents(tensors: Iterable[tuple[Tensor, torch.dtype]], objects: Iterable[str]) -> State:
    """What `.metadata` says of a checkpoint with ``tensors``, and with ``objects``: keys of objects that are None."""
    state: State = {}
    for tensor, dtype in tensors:
        for place in tensor.places:
            if place.key not in state:
                state[place.key] = TensorStorageMetadata(TensorProperties(dtype=dtype), torch.Size(place.shape), [])
            chunk = ChunkStorageMetadata(torch.Size(place.offset), torch.Size(place.block))
            state[place.key].chunks.append(chunk)
    return state | {key: BytesStorageMetadata() for key in objects}


def _flattened(state: State) -> dict[str, dict]:
    """Megatron's mcore_data: of each tensor, what it would have to know if that were flattened."""
    return {key: {} for key, entry in state.items() if isinstance(entry, TensorStorageMetadata)}


def finish(folder: Path, files: dict[str, dict[str, Written]], state: State) -> None:
    """What makes a folder of blocks a checkpoint of ``state``; ``.metadata``, without which nothing loads, comes last.

    ``files`` says for each file what is in it.
    """
    none = io.BytesIO()
    torch.save([None], none)  # megatron keeps an object as the list of those with its key
    put(folder / OBJECTS, none.getvalue())
    storage: dict = {}
    for file, written in files.items():
        for block in (block for one in written.values() for block in one.blocks):
            storage[MetadataIndex(block.key, block.offset)] = _StorageInfo(file, block.begin, block.length)
    for key, entry in state.items():
        if isinstance(entry, BytesStorageMetadata):
            storage[MetadataIndex(key)] = _StorageInfo(OBJECTS, 0, len(none.getvalue()))
    metadata = Metadata(state, storage_data=storage, storage_meta=StorageMeta())
    metadata.mcore_data = _flattened(state)
    common = io.BytesIO()
    torch.save({}, common)
    put(folder / "common.pt", common.getvalue())
    put(folder / "metadata.json", json.dumps(FORMAT).encode())
    put(folder / ".metadata", pickle.dumps(metadata))


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


def _size(value) -> bool:
    return isinstance(value, torch.Size) and all(0 <= number < 2**63 for number in value)


def _chunk(value) -> bool:
    return isinstance(value, ChunkStorageMetadata) and _size(value.offsets) and _size(value.sizes)


def _entry(value) -> bool:
    if isinstance(value, BytesStorageMetadata):
        return True
    parts = isinstance(value, TensorStorageMetadata) and isinstance(value.properties, TensorProperties)
    if not (parts and isinstance(value.properties.dtype, torch.dtype) and isinstance(value.chunks, list)):
        return False
    return _size(value.size) and all(map(_chunk, value.chunks))


def _stored(value, sizes: dict[str, int]) -> bool:
    """In one of the folder's own files and within it: so no path leads out of the folder."""
    if not (isinstance(value, _StorageInfo) and type(value.offset) is int and type(value.length) is int):
        return False
    name = value.relative_path
    within = isinstance(name, str) and 0 <= value.offset <= value.offset + value.length <= sizes.get(name, -1)
    return within and not value.transform_descriptors


def _faults(metadata: object, folder: Path) -> Iterator[str]:
    """What in an unpickled `.metadata` is not of its type, or points to bytes that are not there."""
    if not isinstance(metadata, Metadata):
        yield f"it is a {type(metadata).__name__}"
        return
    for name in ("state_dict_metadata", "storage_data"):
        if not isinstance(getattr(metadata, name), dict):
            yield f"its {name} is a {type(getattr(metadata, name)).__name__}"
            return
    for key, entry in metadata.state_dict_metadata.items():
        if not (isinstance(key, str) and _entry(entry)):
            yield f"its entry of {key!r:.200} is malformed"
    sizes = {file.name: file.stat().st_size for file in os.scandir(folder) if file.is_file()}
    for index, info in metadata.storage_data.items():
        if not (isinstance(index, MetadataIndex) and _stored(info, sizes)):
            yield f"it names bytes that are not in a file of the folder: {index!r:.200} in {info!r:.200}"


class Checkpoint:
    """A checkpoint on disk. Raises UserError where it is none, or damaged."""

    def __init__(self, folder: Path):
        self.folder = folder
        file = folder / ".metadata"
        try:
            self.metadata: Metadata = _Unpickler(io.BytesIO(file.read_bytes())).load()
            fault = next(_faults(self.metadata, folder), None)
        except FileNotFoundError as error:
            raise UserError(f"{folder} is no distributed checkpoint: it has no .metadata", again(folder)) from error
        except Exception as error:  # unpickling damaged bytes raises nearly anything
            fault = why(error)
        if fault:
            raise UserError(f"{file} is damaged or not ours: {fault}", again(folder))

    def compare(self, state: State) -> None:
        """Raises UserError naming the first part that is missing or is not what `finish` makes of ``state``."""
        found, storage = self.metadata.state_dict_metadata, self.metadata.storage_data
        where = f"{self.folder}/.metadata"
        for name, wanted in (("common.pt", {}), (OBJECTS, [None]), ("metadata.json", FORMAT)):
            file = self.folder / name
            if self._load(file, json.loads if file.suffix == ".json" else _torch_load) != wanted:
                raise UserError(f"{file} does not hold {wanted}", again(self.folder))
        objects = _StorageInfo(OBJECTS, 0, (self.folder / OBJECTS).stat().st_size)
        for key in sorted(state.keys() | found.keys()):
            if found.get(key) != state.get(key):
                said = "misses" if key not in found else "does not expect" if key not in state else "has another"
                raise UserError(f"{where} {said} {key}: shape, blocks or dtype", again(self.folder))
            chunks = getattr(state[key], "chunks", None)
            for index in [MetadataIndex(key, chunk.offsets) for chunk in chunks] if chunks else [MetadataIndex(key)]:
                if index not in storage:
                    raise UserError(f"{where} has no bytes of {key} at {index.offset}", again(self.folder))
                if not chunks and storage[index] != objects:
                    raise UserError(f"{where} has {key} not where {OBJECTS} has its one object", again(self.folder))
        if getattr(self.metadata, "mcore_data", None) != _flattened(state):
            raise UserError(f"{where} has another mcore_data", again(self.folder))

    def read(self, where: Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The Hugging Face tensor at ``where``. Raises UserError naming the key and file."""
        return torch.cat([self._block(place, dtype).view(-1, *where.shape[1:]) for place in where.places])

    def _load(self, file: Path, loads: Callable[[bytes], object], begin: int = 0, length: int = -1) -> object:
        try:
            with file.open("rb") as stream:
                stream.seek(begin)
                return loads(stream.read(length))
        except Exception as error:  # as above
            raise UserError(f"{file} at {begin} cannot be read: {why(error)}", again(self.folder)) from error

    def _block(self, place: Place, dtype: torch.dtype) -> torch.Tensor:
        info = self.metadata.storage_data.get(MetadataIndex(place.key, place.offset))
        if info is None:
            raise UserError(f"{self.folder} has no {place.key} at {place.offset}", again(self.folder))
        file = self.folder / info.relative_path
        block = self._load(file, _torch_load, info.offset, info.length)
        plain = isinstance(block, torch.Tensor) and block.layout == torch.strided and block.device.type == "cpu"
        if not plain or (block.dtype, tuple(block.shape)) != (dtype, place.block):
            raise UserError(
                f"{file}: {place.key} at {place.offset} is no tensor of {dtype} and shape {place.block}",
                again(self.folder),
            )
        return block.detach()


def _torch_load(data: bytes) -> object:
    return torch.load(io.BytesIO(data), weights_only=True)
