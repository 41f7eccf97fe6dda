"""patches/stack.toml as typed objects; anything unknown or malformed is refused."""

import re
import tomllib
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from .errors import Exit, PatchsetError

Commit = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]
Text = Annotated[str, StringConstraints(min_length=1)]
# Handed to git as arguments: a leading dash would be read as an option.
Argument = Annotated[str, StringConstraints(pattern=r"^[^-\s]\S*$")]
SdistFile = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\.tar\.gz$")]


def _inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or parts[0] == "/" or ".." in parts or ".git" in parts:
        raise ValueError("should be a relative path inside the checkout")
    return path


def covers(prefixes: list[str], path: str) -> bool:
    """Is `path` one of the files, or in one of the folders (those that end in "/"), that `prefixes` name?"""
    return any(path == prefix or (prefix.endswith("/") and path.startswith(prefix)) for prefix in prefixes)


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Platform(_Table):
    """What the patched stack is built and tested for."""

    python: Text
    torch: Text
    torch_npu: Text
    transformers: Text
    ray: Text
    cann: Text
    hdk: Text
    image: Text


class Sdist(_Table):
    """A release's source distribution.

    `generated` is what its making added to the release's tree and a build rewrites; it is left out of the checkout.
    """

    project: Name
    file: SdistFile
    sha256: Sha256
    generated: list[Annotated[str, AfterValidator(_inside)]] = []


class Framework(_Table):
    """One upstream, pinned."""

    version: Text
    tag: Argument | None = None
    commit: Commit
    sources: Annotated[list[Argument], Field(min_length=1)]
    submodules: bool = False
    paths: Annotated[list[Annotated[str, AfterValidator(_inside)]], Field(min_length=1)]
    sdist: Sdist | None = None
    patched_sha256: Sha256 | None = None

    @property
    def known_sources(self) -> list[str]:
        """What a checkout's base may be made of, as its source ref says it."""
        return [f"git-{self.commit}", *([f"sdist-{self.sdist.sha256}"] if self.sdist else [])]


class Lock(_Table):
    """The whole of patches/stack.toml."""

    platform: Platform
    features: Annotated[dict[Name, Text], Field(min_length=1)]
    frameworks: Annotated[dict[Name, Framework], Field(min_length=1)]


def parse_lock(text: str, shown: str) -> Lock:
    """Read the lock from `text`; `shown` names the file in messages.

    Raises PatchsetError (BAD_INPUT) naming file, key and value.
    """
    try:
        return Lock.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        faults = [f"{shown}: not valid TOML: {error}"]
    except ValidationError as error:
        faults = [_fault(shown, dict(each)) for each in error.errors()]
    raise PatchsetError("\n".join(faults), f"correct {shown}; `git diff {shown}` shows what changed", Exit.BAD_INPUT)


def _fault(shown: str, each: dict) -> str:
    key = ".".join(str(part) for part in each["loc"])
    if each["type"] == "extra_forbidden":
        return f"{shown}: unknown key {key} = {each['input']!r}"
    if each["type"] == "missing":
        return f"{shown}: key {key} is missing"
    return f"{shown}: {key} = {each['input']!r}: {each['msg']}"


def load_lock(path: Path, shown: str) -> Lock:
    """Read the lock file. Raises PatchsetError (BAD_INPUT)."""
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise PatchsetError(f"{shown}: cannot be read: {error}", f"restore {shown}", Exit.BAD_INPUT) from error
    return parse_lock(text, shown)


def set_key(text: str, name: str, key: str, value: str | None) -> str:
    """Return the lock's text with one key of a framework set (None: removed), all else (comments too) untouched.

    Raises PatchsetError (BAD_INPUT) if the framework has no line `[frameworks.NAME]`, but another form of TOML.
    """
    lines = text.splitlines(keepends=True)
    header = re.compile(rf"""\s*\[\s*frameworks\s*\.\s*(["']?){re.escape(name)}\1\s*\]\s*(#.*)?\s*""")
    start = next((i for i, line in enumerate(lines) if header.fullmatch(line)), None)
    if start is None:
        raise PatchsetError(
            f"the lock has no line [frameworks.{name}], below which {key} could be written",
            f"write the keys of {name} below such a line",
            Exit.BAD_INPUT,
        )
    end = next((i for i in range(start + 1, len(lines)) if lines[i].lstrip().startswith("[")), len(lines))
    entry = "" if value is None else f'{key} = "{value}"\n'
    for i in range(start, end):
        if re.match(rf"\s*{key}\s*=", lines[i]):
            lines[i] = entry
            return "".join(lines)
    # At the section's end, but before the blank and comment lines that belong to the next section.
    while not lines[end - 1].strip() or lines[end - 1].startswith("#"):
        end -= 1
    if not lines[end - 1].endswith("\n"):
        lines[end - 1] += "\n"
    lines.insert(end, entry)
    return "".join(lines)
