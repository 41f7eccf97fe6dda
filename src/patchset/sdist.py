"""A release's source distribution: downloaded, checked, and turned into a base commit."""

import hashlib
import os
import posixpath
import re
import stat
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from .errors import Exit, PatchsetError, Unavailable
from .gitrepo import BASE, Checkout, GitError, set_base
from .gitsource import Network
from .lock import Sdist, covers

TIMEOUT = 10.0  # seconds without a byte
# Fixed, so that the base commit has the same hash on every machine.
WHO = b"patchset <patchset@localhost> 946684800 +0000"


def download(
    sdist: Sdist, cache: Path, network: Network, show: Callable[[str], None], say: Callable[[str], None] | None = None
) -> Path:
    """The sdist's file in `cache`, downloaded unless it is there with the right hash; another file is kept aside.

    Raises Unavailable if the index does not have it, PatchsetError (SOURCE) if it serves other bytes, OSError where the
    disk is full.
    """
    cache.mkdir(exist_ok=True)
    path = cache / sdist.file
    if path.is_file() and sha256_of(path) == sdist.sha256:
        return path
    set_aside(path, sdist, say or show)
    part = cache / f"{sdist.file}.part"
    try:
        _download(sdist, part, network, show)
        found = sha256_of(part)
        if found != sdist.sha256:
            raise PatchsetError(
                f"{sdist.file}: wrong sha256, thrown away: expected {sdist.sha256}, got {found}",
                "try again; if it stays, ask whoever runs the index (PIP_INDEX_URL) before you trust it",
                Exit.SOURCE,
            )
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def set_aside(path: Path, sdist: Sdist, say: Callable[[str], None]) -> None:
    """Keep what lies in the place of an sdist, and is not the lock's, under another name."""
    if path.is_file() and (found := sha256_of(path)) != sdist.sha256:
        bad = path.with_name(f"{path.name}.bad")
        path.replace(bad)
        say(f"{path} has sha256 {found}, expected {sdist.sha256}; it is {bad.name} now")


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(sdist: Sdist, part: Path, network: Network, show: Callable[[str], None]) -> None:
    with _package(sdist.project, sdist.file) as (client, package):
        # The lock's hash is the one that counts; it is checked on the finished file.
        client.download_package(
            package, part, verify=False, progress=lambda size: _Meter(network, show, size), timeout=TIMEOUT
        )


def find_sdist(old: Sdist, file: str) -> Sdist:
    """Another release's sdist, with the sha256 that the index gives. Raises Unavailable."""
    with _package(old.project, file) as (_, package):
        if not (sha256 := package.digests.get("sha256")):
            raise Unavailable(f"the index gives no sha256 of {file}")
        return old.model_copy(update={"file": file, "sha256": sha256})


@contextmanager
def _package(project: str, file: str) -> Iterator[tuple]:
    """A client of the index, and what it says about one file. Raises Unavailable, also for faults in the block."""
    # Imported here: they take longer than a whole `patchset status`.
    import requests
    from pypi_simple import NoSuchProjectError, PyPISimple, UnsupportedContentTypeError

    index = [url] if (url := os.environ.get("PIP_INDEX_URL")) else []
    try:
        with PyPISimple(*index) as client:
            if bundle := os.environ.get("PIP_CERT"):
                client.s.verify = bundle
            page = client.get_project_page(project, timeout=TIMEOUT)
            package = next((each for each in page.packages if each.filename == file), None)
            if package is None:
                raise Unavailable(f"the index has no {file}")
            yield client, package
    except (requests.RequestException, NoSuchProjectError, UnsupportedContentTypeError) as error:
        raise Unavailable(_reason(error)) from error


def _reason(error: BaseException) -> str:
    # requests wraps urllib3's errors several deep; the innermost says what happened.
    while inner := error.__cause__ or error.__context__:
        error = inner
    return re.sub(r"//[^/@\s]*@", "//", f"{type(error).__name__}: {error}")  # no password of an index in a log


class _Meter:
    """pypi-simple's progress protocol; also the place where a download notices that it is to stop."""

    def __init__(self, network: Network, show: Callable[[str], None], size: int | None) -> None:
        self._network, self._show, self._size, self._done = network, show, size, 0

    def __enter__(self) -> "_Meter":
        return self

    def __exit__(self, *_) -> None:
        pass

    def update(self, increment: int) -> None:
        self._network.check()
        self._done += increment
        of = f" of {self._size / 1e6:.1f}" if self._size else ""
        self._show(f"{self._done / 1e6:.1f}{of} MB")


def import_sdist(checkout: Checkout, file: Path, sdist: Sdist, network: Network) -> None:
    """Commit the content of `file` without its top folder, tag it as the base and check it out.

    `git fast-import` takes bytes and modes from the archive itself, so no umask, ignore file or file system changes the
    hash. Raises PatchsetError (SOURCE) for an unsafe archive; GitError.
    """
    process = checkout.start("fast-import", "--quiet", stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        with tarfile.open(file) as archive:
            _write_commit(process.stdin, archive, sdist, network)
        process.stdin.close()
    except BrokenPipeError:
        pass  # fast-import has ended early; its message follows
    except BaseException:
        process.kill()
        raise
    finally:
        said = process.stderr.read().decode("utf-8", "replace")
        process.wait()
    if process.returncode:
        raise GitError(checkout.path, ("fast-import",), said)
    set_base(checkout, BASE, f"sdist-{sdist.sha256}")


def _leaves(link: tarfile.TarInfo) -> bool:
    """Does the link's target lie outside the archive's top folder? (tarfile's own filters came with Python 3.11.4.)"""
    start = posixpath.dirname(link.name) if link.issym() else ""
    target = posixpath.normpath(posixpath.join(start, link.linkname))
    top = link.name.partition("/")[0]
    return target != top and not target.startswith(f"{top}/")


def _write_commit(stream: BinaryIO, archive: tarfile.TarFile, sdist: Sdist, network: Network) -> None:
    def data(content: bytes) -> None:
        stream.write(b"data %d\n%b\n" % (len(content), content))

    stream.write(b"commit %b\nauthor %b\ncommitter %b\n" % (BASE.encode(), WHO, WHO))
    data(f"{sdist.file}\n\nsha256 {sdist.sha256}\n".encode())
    for member in archive:
        network.check()
        path = member.name.partition("/")[2]
        if member.isdir() or not path or covers(sdist.generated, path):
            continue
        what = "is a special file" if not (member.isfile() or member.issym() or member.islnk()) else ""
        if member.linkname and _leaves(member):
            what = f"links to {member.linkname}, outside"
        if what:
            raise PatchsetError(f"{archive.name}: {member.name} {what}", "do not trust this file", Exit.SOURCE)
        if "\n" in path or path.startswith('"') or {"", ".", "..", ".git"}.intersection(path.split("/")):
            raise PatchsetError(f"{archive.name}: odd name {path!r}", "do not trust this file", Exit.SOURCE)
        if member.issym():
            mode, content = b"120000", member.linkname.encode()
        else:
            mode = b"100755" if member.mode & stat.S_IXUSR else b"100644"
            content = archive.extractfile(member).read()
        stream.write(b"M %b inline %b\n" % (mode, path.encode("utf-8", "surrogateescape")))
        data(content)
