"""Hugging Face weights on disk, read one tensor at a time (not mapped into memory, where pages would add up).

The safetensors format: 8 bytes little-endian length, a JSON header {name: {dtype, shape, data_offsets}}, the data
(https://github.com/huggingface/safetensors, its README).
"""

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from qwen3_rl import typed_json
from qwen3_rl.errors import UserError

DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
AGAIN = "download the model's files again"
MOST_HEADER_BYTES = 100_000_000  # the format's own limit


class Entry(BaseModel):
    """A tensor in a header. The offsets count from the header's end, in bytes."""

    dtype: str
    shape: list[NonNegativeInt]
    data_offsets: tuple[NonNegativeInt, NonNegativeInt]


class Header(BaseModel):
    """A file's header: an entry for each tensor, and what its writer remarks."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Entry]
    remarks: Any = Field(None, alias="__metadata__")


class Index(BaseModel):
    """model.safetensors.index.json: the file of each tensor."""

    weight_map: dict[str, str]


@dataclass(frozen=True)
class Stored:
    """One tensor of a file: where its bytes are."""

    file: Path
    begin: int
    size: int
    dtype: torch.dtype
    shape: tuple[int, ...]

    def read(self) -> torch.Tensor:
        """The tensor, alone in memory. Raises UserError where the file has become shorter."""
        buffer = bytearray(self.size)
        with self.file.open("rb") as stream:
            stream.seek(self.begin)
            if stream.readinto(buffer) != self.size:
                raise UserError(f"{self.file} ends within a tensor", AGAIN)
        return torch.frombuffer(buffer, dtype=self.dtype).view(self.shape)


@dataclass(frozen=True)
class Shard:
    """One safetensors file. ``identity`` changes whenever the file does: its header, its size, its time."""

    file: Path
    tensors: dict[str, Stored]
    identity: str


def open_shard(file: Path) -> Shard:
    """Reads the header and checks that its tensors are all the bytes there are. Raises UserError naming the file."""
    if not file.is_file():
        raise UserError(f"{file} is missing", AGAIN)
    total, time = file.stat().st_size, file.stat().st_mtime_ns
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if total < 8 or length > min(total - 8, MOST_HEADER_BYTES):
            raise UserError(f"{file} is truncated, or no safetensors file: {total} bytes", AGAIN)
        header = stream.read(length)
    entries = typed_json.parse(Header, file, header, AGAIN).__pydantic_extra__
    tensors = {name: _stored(file, 8 + length, name, entry) for name, entry in entries.items()}
    end = 8 + length
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].size)):
        if tensor.begin != end:
            fault = "it overlaps the tensor before it" if tensor.begin < end else "there is a hole before it"
            offsets = list(entries[name].data_offsets)
            raise UserError(
                f"{file}: {name} has data_offsets {offsets}, not from {end - 8 - length} on: {fault}", AGAIN
            )
        end += tensor.size
    if end != total:
        raise UserError(f"{file} has {total} bytes, its header speaks of {end}", AGAIN)
    return Shard(file, tensors, hashlib.sha256(f"{total} {time} ".encode() + header).hexdigest())


def _stored(file: Path, data: int, name: str, entry: Entry) -> Stored:
    begin, end = entry.data_offsets
    if entry.dtype not in DTYPES:
        raise UserError(f"{file} holds {entry.dtype} weights", f"convert from one of {', '.join(DTYPES)}")
    dtype = DTYPES[entry.dtype]
    if end - begin != (size := math.prod(entry.shape) * dtype.itemsize):
        raise UserError(f"{file}: {name}: {end - begin} bytes for {entry.shape} of {entry.dtype}", AGAIN)
    return Stored(file, data + begin, size, dtype, tuple(entry.shape))


def open_model(folder: Path) -> list[Shard]:
    """The shards of a model in the order of their names. Raises UserError if one is missing or truncated."""
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if not index.is_file():
        if not single.is_file():
            raise UserError(
                f"{folder} has neither {index.name} nor {single.name}", "name a Hugging Face model's folder"
            )
        return [open_shard(single)]
    where = typed_json.parse(Index, index, index.read_bytes(), AGAIN).weight_map
    shards = [open_shard(folder / file) for file in sorted(set(where.values()))]
    found: dict[str, str] = {}
    for shard in shards:
        if twice := sorted(shard.tensors.keys() & found.keys()):
            raise UserError(f"{folder / found[twice[0]]} and {shard.file} both hold {twice[0]}", AGAIN)
        found |= dict.fromkeys(shard.tensors, shard.file.name)
    if wrong := sorted(where.items() ^ found.items()):
        raise UserError(f"{index} and the files differ: {wrong[0][0]} is not where it says", AGAIN)
    return shards
