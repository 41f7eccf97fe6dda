"""JSON that others wrote, checked against a pydantic model before anything is done with it."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from qwen3_rl.errors import UserError

Kind = TypeVar("Kind", bound=BaseModel)


def parse(kind: type[Kind], file: Path, data: bytes, advice: str) -> Kind:
    """``data`` of ``file`` as ``kind``, no type being bent. Raises UserError naming the first wrong key."""
    try:
        return kind.model_validate_json(data, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"])) or "the whole"
        value = "" if first["type"] in ("missing", "json_invalid") else f" is {first['input']!r:.100}"
        raise UserError(f"{file}: {key}{value}: {first['msg']}", advice) from error
