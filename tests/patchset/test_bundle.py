"""bundle create, fetch --bundle: the same checkouts on a machine without any network; damage is named."""

import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest
from patchset_lab import Index, Lab, git
from test_fetch import FILES, use_sdist

from patchset import bundle


@pytest.fixture
def mixed(empty_lab: Lab, index: Index) -> Lab:
    """alpha from git with a submodule (which has one itself), beta from an sdist; a bundle of both."""
    lab = empty_lab
    use_sdist(lab, index, "beta")
    for inner, outer in (("innermost", "inner"), ("inner", "alpha")):
        for name in (inner, outer):
            if not lab.upstream(name).exists():
                lab.add_framework(name, {"f.py": f"{name}\n"})
        allow = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add")
        git(lab.upstream(outer), *allow, f"file://{lab.upstream(inner)}", f"sub/{inner}")
        git(lab.upstream(outer), "commit", "-qm", "with a submodule")
        lab.keys.pop(inner)
    head = git(lab.upstream("alpha"), "rev-parse", "HEAD")
    lab.keys["alpha"] |= {"commit": f'"{head}"', "submodules": "true"}
    lab.write_lock()
    lab.ok("fetch")
    done = lab.ok("bundle", "create", str(lab.top / "all.bundle"))
    assert "all.bundle: alpha, beta (" in done.out
    return lab


def elsewhere(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another machine: an empty frameworks folder, no upstream, no index."""
    shutil.rmtree(lab.top / "upstream")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple/")
    monkeypatch.setenv("FRAMEWORKS_DIR", str(lab.top / "elsewhere"))
    return lab.top / "elsewhere"


def test_a_bundle_gives_equal_checkouts(mixed: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    files, heads = mixed.snapshot(), mixed.heads()
    assert any("sub/inner/sub/innermost/f.py" in path for path in files)
    there = elsewhere(mixed, monkeypatch)
    mixed.ok("fetch", "--bundle", str(mixed.top / "all.bundle"))
    for name in mixed.keys:
        assert git(there / name, "rev-parse", "HEAD", "patchset/base").split() == [heads[name]] * 2
        assert git(there / name, "status", "--porcelain", "--ignored") == ""
        git(there / name, "fsck", "--strict")
    found = {path.relative_to(there): path for path in there.rglob("*") if path.is_file()}
    assert {str(k): p.read_bytes() for k, p in found.items() if ".git" not in k.parts and len(k.parts) > 1} == {
        **files,
        ".cache/beta-1.0.tar.gz": (there / ".cache/beta-1.0.tar.gz").read_bytes(),
    }
    assert "already here" in mixed.ok("fetch", "--bundle", str(mixed.top / "all.bundle")).out
    # From what came out of a bundle a bundle can be made.
    mixed.ok("bundle", "create", str(mixed.top / "again.bundle"))


def test_only_what_is_there_is_packed(mixed: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(mixed.frameworks / "alpha")
    done = mixed.ok("bundle", "create", str(mixed.top / "some.bundle"))
    assert "alpha: source absent, not in the bundle" in done.err
    elsewhere(mixed, monkeypatch)
    done = mixed.ok("fetch", "--bundle", str(mixed.top / "some.bundle"))
    assert "beta: fetched" in done.out and "the bundle does not have it" in done.err
    shutil.rmtree(mixed.top / "elsewhere")
    mixed.refused(6, "bundle", "create", str(mixed.top / "x"), names=("holds no checkout",))


def test_another_lock(mixed: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere(mixed, monkeypatch)
    mixed.keys["beta"]["version"] = '"1.0.0"'
    mixed.keys["alpha"]["commit"] = f'"{"1" * 40}"'
    mixed.write_lock()
    done = mixed.run("fetch", "--bundle", str(mixed.top / "all.bundle"))
    assert "was made for another state of patches/stack.toml" in done.out
    assert "beta: fetched" in done.out  # its source is the same
    assert done.code == 6 and "holds alpha as git-" in done.err and "pins 1.0" in done.err


@pytest.mark.parametrize("what", ["text", "empty", "cut", "no manifest", "bad manifest", "format"])
def test_what_is_no_bundle(mixed: Lab, what: str) -> None:
    file = mixed.top / "all.bundle"
    data = file.read_bytes()

    def archive(members: dict[str, bytes]) -> bytes:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as made:
            for name, content in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                made.addfile(member, io.BytesIO(content))
        return packed.getvalue()

    manifest = {"format": 2, "lock": "0" * 64, "sources": {}}
    file.write_bytes(
        {
            "text": b"hello\n" * 300,
            "empty": b"",
            "cut": data[:700],
            "no manifest": archive({"x": b"x"}),
            "bad manifest": archive({bundle.MANIFEST: b'{"format": 1, "more": 2}'}),
            "format": archive({bundle.MANIFEST: json.dumps(manifest).encode()}),
        }[what]
    )
    mixed.refused(6, "fetch", "--bundle", str(file), names=(str(file),))


def test_a_missing_bundle(mixed: Lab) -> None:
    mixed.refused(2, "fetch", "--bundle", "/no/such/file", names=("there is no file /no/such/file",))
    mixed.refused(8, "bundle", "create", "/no/such/folder/file")


@pytest.mark.parametrize(("name", "key"), [("alpha", "alpha/git/sub/inner.pack"), ("beta", "beta/sdist")])
@pytest.mark.parametrize("manifest_too", [False, True])
def test_damage_is_named(mixed: Lab, monkeypatch: pytest.MonkeyPatch, name: str, key: str, manifest_too: bool) -> None:
    """One byte of one file; also where somebody made the manifest fit."""
    file = mixed.top / "all.bundle"
    with tarfile.open(file) as archive:
        member = archive.getmember(key)
        content = archive.extractfile(member).read()
    data = bytearray(file.read_bytes())
    old = bundle.hashlib.sha256(content).hexdigest().encode()
    damaged = bytearray(content)
    damaged[len(content) // 2] ^= 1
    data[member.offset_data : member.offset_data + len(content)] = damaged
    if manifest_too:
        new = bundle.hashlib.sha256(damaged).hexdigest().encode()
        assert old in data
        data = data.replace(old, new)
    file.write_bytes(data)
    there = elsewhere(mixed, monkeypatch)
    done = mixed.run("fetch", "--bundle", str(file))
    assert done.code in (6, 8) and f"{name}: failed" in done.err
    assert not (there / name).exists() and not list(there.glob(".tmp-*")) and not list(there.glob(".cache/*.part"))
    assert set(FILES) and (done.code == 6 or manifest_too)
