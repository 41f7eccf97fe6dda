"""What an sdist may hold: files and links that stay inside it. Also on Python 3.11.2, whose tarfile has no filters."""

import io
import tarfile
from types import SimpleNamespace

import pytest

from patchset.errors import PatchsetError
from patchset.sdist import _write_commit


def commit(**fields) -> bytes:
    """The fast-import stream of an archive with one member of these fields."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("top/a/b")
        for name, value in fields.items():
            setattr(member, name, value)
        archive.addfile(member)
    packed.seek(0)
    stream = io.BytesIO()
    sdist = SimpleNamespace(file="x.tar", sha256="0", generated=())
    with tarfile.open("x.tar", fileobj=packed) as archive:
        _write_commit(stream, archive, sdist, SimpleNamespace(check=lambda: None))
    return stream.getvalue()


@pytest.mark.parametrize("target", ["c", "../c", "../../top/c", "./x/../c"])
def test_a_link_inside_is_taken(target):
    assert target.encode() in commit(type=tarfile.SYMTYPE, linkname=target)


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../c", "../..", "x/../../../../c"])
def test_a_link_that_leaves_is_refused(target):
    with pytest.raises(PatchsetError, match=r"top/a/b links to .*, outside"):
        commit(type=tarfile.SYMTYPE, linkname=target)


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_a_special_file_is_refused(kind):
    with pytest.raises(PatchsetError, match="top/a/b is a special file"):
        commit(type=kind)
