"""One patch file: its mail header, its message and trailers, the files and hunks it changes."""

import codecs
import email
import email.errors
import email.header
import email.utils
import re
from dataclasses import dataclass
from datetime import UTC
from itertools import pairwise
from pathlib import Path

from unidiff import PatchedFile, PatchSet
from unidiff.errors import UnidiffParseError

from .errors import Exit, PatchsetError, refuse_all
from .lock import covers

FILE_NAME = re.compile(r"^(\d{4})-[a-z0-9][a-z0-9.-]*\.patch$")
TRAILER = re.compile(r"^([A-Z][A-Za-z-]*): (.+)$")
# Lines of a patch's frame: they never start a line of a hunk, so a CR there means that the whole file was converted.
CRLF_FRAME = re.compile(rb"^(From |From: |Subject: |diff --git |index |@@ )[^\n]*\r$", re.M)
# What may precede the first `diff --git` line, and so must not look like a piece of a diff that lost its own.
STRAY = re.compile(r"^(--- |\+\+\+ |@@ |index [0-9a-f]+\.\.)", re.M)
SIGNATURE = re.compile(r"^-- \n\S+\n*\Z", re.M)
BLANK_NAME = re.compile(r"^(--- a/.* .*|\+\+\+ b/.* .*)\t$", re.M)
HUNK = re.compile(r"^@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@", re.M)
EXPORT = "restore it (git checkout -- FILE); patches are changed in the checkout, then: patchset export"


@dataclass(frozen=True)
class Patch:
    """A parsed patch; `shown` is its path as messages name it."""

    shown: str
    name: str
    number: int
    data: bytes
    author: str
    email: str
    date: str
    message: str
    trailers: dict[str, str]
    diff: PatchSet

    @property
    def subject(self) -> str:
        return self.message.split("\n", 1)[0]

    @property
    def stem(self) -> str:
        """The name without number and ending, as a Depends-on trailer gives it."""
        return self.name[5:].removesuffix(".patch")

    @property
    def feature(self) -> str:
        return self.trailers.get("Feature", "")

    @property
    def files(self) -> list[str]:
        """Every upstream path that the patch reads or writes, sorted."""
        return sorted({path for file in self.diff for path in paths_of(file)})


def paths_of(file: PatchedFile) -> list[str]:
    """The old and the new path of one file of a diff, without the a/ and b/."""
    return [side[2:] for side in (file.source_file, file.target_file) if side != "/dev/null"]


def read_patch(path: Path, shown: str) -> Patch:
    """Read and check one patch file. Raises PatchsetError (BAD_INPUT) naming it."""
    if not FILE_NAME.match(path.name):
        raise _bad(shown, "the name should be NNNN-<feature>-<what>.patch, in lower case", "rename it")
    if not path.is_file():  # reading a pipe would wait for ever
        raise _bad(shown, "is no file, or a link to none", "move it away")
    return parse_patch(path.read_bytes(), path.name, shown)


def parse_patch(data: bytes, name: str, shown: str) -> Patch:
    """Read one patch of that file name. Raises PatchsetError (BAD_INPUT) naming `shown`."""
    if data.startswith(codecs.BOM_UTF8):
        what = "begins with a byte order mark (BOM), which an editor has put there"
        raise _bad(shown, what, f"sed -i '1s/^\\xef\\xbb\\xbf//' {shown}")
    if CRLF_FRAME.search(data):
        raise _bad(shown, "has CRLF line ends, so no hunk can match", f"sed -i 's/\\r$//' {shown}")
    # Undecodable bytes survive as surrogates: upstream files need not be UTF-8.
    text = data.decode("utf-8", "surrogateescape")
    head, mark, tail = text.partition("\ndiff --git ")
    if not mark:
        raise _bad(shown, "holds no `diff --git` line", EXPORT)
    if not data.endswith(b"\n"):
        raise _bad(shown, "is cut off: its last line has no end", EXPORT)
    try:
        diff = PatchSet(text)
    except (UnidiffParseError, ValueError, AssertionError) as error:
        raise _bad(shown, f"does not parse: {str(error).strip()}", EXPORT) from error
    odd = [file for file in diff if file.is_binary_file or not file.source_file or not file.target_file]
    if odd or not all(_prefixed(file) for file in diff):
        raise _bad(shown, "is binary or has paths without a/ and b/", EXPORT)
    # git skips what it does not take for a diff, a damaged hunk header for one: every line must have been understood.
    if STRAY.search(head) or _spelled_out(SIGNATURE.sub("", mark[1:] + tail)) != _spelled_out(str(diff)):
        raise _bad(shown, "holds lines that are no part of a diff", EXPORT)
    return Patch(shown, name, int(name[:4]), data, *_header(head, shown), diff)


def _spelled_out(diff: str) -> str:
    """The diff with its hunk headers in their long form (`-3` means `-3,1`), and no tab behind a name with a blank."""
    diff = BLANK_NAME.sub(r"\1", diff)
    return HUNK.sub(lambda found: f"@@ -{found[1]}{found[2] or ',1'} +{found[3]}{found[4] or ',1'} @@", diff)


def _prefixed(file: PatchedFile) -> bool:
    sides = ((file.source_file, "a/"), (file.target_file, "b/"))
    return all(side == "/dev/null" or (side.startswith(prefix) and "\n" not in side) for side, prefix in sides)


def _header(head: str, shown: str) -> tuple[str, str, str, str, dict[str, str]]:
    # Not with policy.default: its header parser takes longer than git to apply the patch.
    mail = email.message_from_string(head)
    try:
        author, address = email.utils.parseaddr(str(mail["From"] or ""))
        author, subject = _decoded(author), " ".join(_decoded(mail["Subject"] or "").split())
        when = email.utils.parsedate_to_datetime(str(mail["Date"]))
    except (ValueError, TypeError, IndexError, LookupError, OverflowError, email.errors.MessageError) as error:
        raise _bad(
            shown, f"has a malformed mail header: {error}", "write From, Date and Subject as git does"
        ) from error
    subject = re.sub(r"^\[PATCH[^]]*\] *", "", subject)
    if not (author and address and subject):
        raise _bad(shown, "has no From or Subject in its mail header", EXPORT)
    when = when if when.tzinfo else when.replace(tzinfo=UTC)  # "-0000" is read as a time without zone
    if re.search(r"[<>\n]", author + address) or "\0" in head or when.timestamp() < 0:
        raise _bad(shown, f"has an author or a date that git does not take: {author} <{address}>, {when}", EXPORT)
    # The body ends at the `---` that stands before the file statistics.
    body = re.split(r"^---$", head.partition("\n\n")[2], maxsplit=1, flags=re.M)[0].strip()
    message = f"{subject}\n\n{body}".strip() + "\n"
    return author, address, f"{int(when.timestamp())} {when:%z}", message, read_trailers(message)


def _decoded(value: str | email.header.Header) -> str:
    return str(email.header.make_header(email.header.decode_header(value)))


def read_trailers(message: str) -> dict[str, str]:
    """The trailers of a commit's message: its last paragraph."""
    lines = message.strip().rpartition("\n\n")[2].splitlines()
    return {found[1]: found[2] for line in lines if (found := TRAILER.match(line))}


def _bad(shown: str, what: str, next_step: str) -> PatchsetError:
    return PatchsetError(f"{shown}: {what}", next_step, Exit.BAD_INPUT)


def read_series(folder: Path, shown: str, allowed: list[str]) -> list[Patch]:
    """The patches of one framework in their order.

    Raises PatchsetError (BAD_INPUT) naming all malformed patches, numbers used twice, and paths outside `allowed`.
    """
    patches, faults = [], []
    for path in sorted(folder.glob("*.patch")):
        try:
            patches.append(read_patch(path, f"{shown}/{path.name}"))
        except PatchsetError as error:
            faults.append(error)
    for before, after in pairwise(patches):
        if before.number == after.number:
            faults.append(_bad(after.shown, f"has the number of {before.name}", "renumber one of them"))
    for patch in patches:
        for path in patch.files:
            if not covers(allowed, path):
                what = f"changes {path}, outside the lock's paths {allowed}"
                faults.append(_bad(patch.shown, what, "keep patches in them"))
    refuse_all(faults)
    return patches
