"""One file with every source of the lock, for machines without any network."""

import hashlib
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from .errors import Exit, PatchsetError, Unavailable, quoted
from .gitrepo import Checkout, init_checkout, set_base
from .gitsource import Network
from .lock import Framework, Sha256
from .project import LOCK, Project, exclusive
from .sdist import download, import_sdist, set_aside, sha256_of
from .stack import check_source

MANIFEST = "manifest.json"


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Source(_Table):
    """One framework: what it is made of, and the sha256 of each of its files in the bundle.

    An sdist is the file `NAME/sdist`; a git source is `NAME/git.pack`, and `NAME/git/PATH.pack` for each submodule.
    """

    source: str
    files: dict[str, Sha256]


class Manifest(_Table):
    """The first file in the bundle. `lock` is the sha256 of the stack.toml that it was made for."""

    format: int
    lock: Sha256
    sources: dict[str, Source]


def create(project: Project, target: Path) -> tuple[list[str], list[str]]:
    """Write the sources of all checkouts that are there; returns their names and those of the absent ones.

    Raises PatchsetError: REFUSED for a checkout of another version than the lock's, SOURCE where an sdist is gone.
    """
    with exclusive(project), tempfile.TemporaryDirectory() as scratch:
        checkouts, absent = project.checkouts()
        sources, files = {}, {}
        for name, checkout in checkouts.items():
            heads = checkout.heads()
            check_source(project, checkout, heads)
            if heads.source.startswith("git-"):
                parts = dict(_pack(checkout, heads.base, f"{name}/git", Path(scratch)))
            else:
                sdist = project.lock.frameworks[name].sdist
                file = download(sdist, project.frameworks / ".cache", Network(), lambda _: None, print)
                parts = {f"{name}/sdist": file}
            files |= parts
            sources[name] = Source(source=heads.source, files={key: sha256_of(file) for key, file in parts.items()})
        if not sources:
            raise PatchsetError(f"{project.frameworks} holds no checkout", "run: patchset fetch", Exit.SOURCE)
        manifest = Path(scratch, MANIFEST)
        manifest.write_text(Manifest(format=1, lock=_lock_hash(project), sources=sources).model_dump_json(indent=2))
        draft = target.with_name(f".{target.name}.new")
        try:
            with tarfile.open(draft, "w") as archive:
                for key, file in {MANIFEST: manifest, **files}.items():
                    archive.add(file, key, filter=_plain)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    return list(sources), absent


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Nothing of this machine or moment."""
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member


def _lock_hash(project: Project) -> str:
    return hashlib.sha256((project.root / LOCK).read_bytes()).hexdigest()


def _pack(checkout: Checkout, commit: str, key: str, scratch: Path) -> Iterator[tuple[str, Path]]:
    """One commit without its history, and those of the submodules, each as a pack."""
    file = scratch / hashlib.sha256(key.encode()).hexdigest()
    # A pack, not what `git bundle` makes: that wants a ref, and knows no commit without its history.
    checkout.pack(file, commit)
    yield f"{key}.pack", file
    for path, linked in checkout.submodules(commit).items():
        inner = Checkout(checkout.path / path)
        if not (inner.path / ".git").exists():
            raise PatchsetError(
                f"{checkout.path}: submodule {path} is not there",
                f"git -C {quoted(checkout.path)} submodule update --init --recursive",
                Exit.SOURCE,
            )
        yield from _pack(inner, linked, f"{key}/{path}", scratch)


class Bundle:
    """A bundle to fetch from; opening it checks that it is one."""

    def __init__(self, path: Path) -> None:
        """Raises PatchsetError (SOURCE) for a file that is no bundle."""
        self.path = path
        try:
            with tarfile.open(path) as archive:
                self._manifest = Manifest.model_validate_json(archive.extractfile(MANIFEST).read())
        except (tarfile.TarError, KeyError, AttributeError, ValidationError) as error:
            raise self._bad(f"is no bundle: {str(error).splitlines()[0]}") from error
        except FileNotFoundError as error:
            raise PatchsetError(
                f"there is no file {path}", "name what `patchset bundle create` wrote", Exit.USAGE
            ) from error
        if self._manifest.format != 1:
            raise self._bad(f"has format {self._manifest.format}, not 1")

    def _bad(self, what: str) -> PatchsetError:
        return PatchsetError(
            f"{self.path} {what}", "copy it again, or make it anew: patchset bundle create", Exit.SOURCE
        )

    def remark(self, project: Project) -> str | None:
        """What to say before use: the lock that it was made for is another one."""
        if self._manifest.lock == _lock_hash(project):
            return None
        return f"{self.path} was made for another state of {LOCK}; each source is compared with the present one"

    def unpack(
        self, checkout: Checkout, framework: Framework, network: Network, cache: Path, say: Callable[[str], None]
    ) -> None:
        """Fill an empty checkout. Raises Unavailable if the bundle does not have this framework, PatchsetError (SOURCE)
        for another version than the lock's, and for damage."""
        name = checkout.name
        source = self._manifest.sources.get(name)
        if source is None:
            raise Unavailable("the bundle does not have it")
        if source.source not in framework.known_sources:
            raise self._bad(f"holds {name} as {source.source}, but {LOCK} pins {framework.version}")
        if source.source.startswith("git-"):
            self._unpack_git(checkout, framework.commit, source, f"{name}/git", network)
            set_base(checkout, framework.commit, source.source)
        else:
            cache.mkdir(exist_ok=True)
            file = cache / framework.sdist.file
            set_aside(file, framework.sdist, say)
            self._extract(source, f"{name}/sdist", file)
            if sha256_of(file) != framework.sdist.sha256:
                file.unlink()
                raise self._bad(f"holds a {file.name} that is not the lock's")
            import_sdist(checkout, file, framework.sdist, network)

    def _unpack_git(self, checkout: Checkout, commit: str, source: Source, key: str, network: Network) -> None:
        network.check()
        # The commit without its parents is whole.
        (checkout.path / ".git" / "shallow").write_text(f"{commit}\n")
        pack = checkout.path / ".git" / "bundle.pack"
        self._extract(source, f"{key}.pack", pack)
        # Every object is named by git's hash of its content: what is no part of the lock's commit is never looked at.
        checkout.run("index-pack", "--stdin", data=pack.read_bytes())
        pack.unlink()
        checkout.run("checkout", "--quiet", "--detach", commit)
        for path, linked in checkout.submodules(commit).items():
            self._unpack_git(init_checkout(checkout.path / path), linked, source, f"{key}/{path}", network)

    def _extract(self, source: Source, key: str, target: Path) -> None:
        """One file of the bundle, checked."""
        part = target.with_name(f"{target.name}.part")
        try:
            with tarfile.open(self.path) as archive, part.open("wb") as sink:
                shutil.copyfileobj(archive.extractfile(key), sink, 1 << 20)
        except (tarfile.TarError, KeyError, AttributeError) as error:
            raise self._bad(f"lacks {key}") from error
        if sha256_of(part) != source.files.get(key):
            part.unlink()
            raise self._bad(f"is damaged: {key} has another sha256 than when it was made")
        part.replace(target)
