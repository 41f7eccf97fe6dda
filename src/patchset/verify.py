"""verify: is every checkout byte for byte what the lock says? And one line that names what is there."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from .errors import Exit, PatchsetError, some
from .gitrepo import Checkout, is_absent, open_checkout
from .patchfile import Patch
from .prepare import build_tip, content_hash, hash_of, touched
from .project import LOCK, Project
from .selection import choose, recorded
from .stack import WORKERS, check_source
from .switch import read_journal

SHORT = 12


@dataclass(frozen=True)
class Verdict:
    """One framework: right (None if it is absent), its hash if it has patches, and what is wrong otherwise."""

    name: str
    right: bool | None
    found: str | None
    detail: str


def verify(project: Project) -> list[Verdict]:
    """Read every tracked file anew and compare; no time stamp, index or prepared commit is trusted.

    Raises PatchsetError (BAD_INPUT) for a bad lock or patch.
    """
    chosen = choose(project, recorded(project))[0]
    moving = {move.name for move in read_journal(project).moves}

    def one(name: str) -> Verdict:
        if is_absent(project.path(name)):
            return Verdict(name, None, None, "absent")
        if name in moving:
            return Verdict(name, False, None, "a command was killed while it switched: patchset apply (or unapply)")
        try:
            return _verify(project, open_checkout(project.path(name)), chosen[name])
        except PatchsetError as error:
            return Verdict(name, False, None, error.what)

    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(one, project.lock.frameworks))


def _verify(project: Project, checkout: Checkout, patches: list[Patch]) -> Verdict:
    heads = checkout.heads()
    check_source(project, checkout, heads)
    framework, name = project.lock.frameworks[checkout.name], checkout.name
    if heads.source.startswith("git-") and heads.base != framework.commit:
        return Verdict(name, False, None, f"the base is {heads.base}, not {framework.commit}")
    # A fresh index knows no file's time: every file is read.
    with checkout.own_index(heads.head) as own:
        edited = checkout.dirty(env=own)
    found = content_hash(checkout, heads.head, touched(patches)) if patches else None
    tip = build_tip(checkout, heads.base, patches)
    expected = content_hash(checkout, tip, touched(patches)) if patches else None
    if patches == project.series[name] and framework.patched_sha256:
        expected = framework.patched_sha256
    if edited:
        return Verdict(name, False, found, f"edited: {some(edited)}")
    if found != expected:
        return Verdict(name, False, found, f"not the patched files: expected {expected}")
    if other := sorted(checkout.changed(heads.head, tip)):
        return Verdict(name, False, found, f"files that no patch touches differ: {some(other)}")
    return Verdict(name, True, found, f"{framework.version}, {len(patches)} patches on {heads.source[: SHORT + 6]}")


def attestation(project: Project) -> dict[str, str]:
    """What is there, in a dozen digits each: the lock, the selection if there is one, and every framework.

    A framework's digits are those of its patched_sha256, taken from the files on disk; `pristine` where no patch of the
    lock touches it; `+` and more digits where other files are edited.
    """
    selected = recorded(project)
    chosen = choose(project, selected)[0]
    moving = {move.name for move in read_journal(project).moves}
    said = {"lock": hashlib.sha256((project.root / LOCK).read_bytes()).hexdigest()[:SHORT]}
    if selected is not None:
        said["features"] = ",".join(selected) or "none"
    for name, patches in chosen.items():
        said[name] = "interrupted" if name in moving else _attest(project, name, touched(patches))
    return said


def _attest(project: Project, name: str, paths: list[str]) -> str:
    path = project.path(name)
    if is_absent(path):
        return "absent"
    try:
        checkout = open_checkout(path)
        check_source(project, checkout, checkout.heads())
        edited = [each for each in checkout.dirty() if each not in paths]
    except PatchsetError as error:
        return "damaged" if error.code is Exit.SYSTEM else "foreign"
    digits = _disk_hash(checkout, paths) if paths else "pristine"
    return digits + (f"+{_disk_hash(checkout, edited)}" if edited else "")


def _disk_hash(checkout: Checkout, paths: list[str]) -> str:
    """As content_hash, shortened, but of the files as they lie there."""
    return hash_of(paths, lambda path: _read(checkout, path))[:SHORT]


def _read(checkout: Checkout, path: str) -> bytes | None:
    try:
        return (checkout.path / path).read_bytes()
    except OSError:
        return None


def one_line(said: dict[str, str]) -> str:
    """The attestation as it is pasted into a report."""
    return "patchset " + " ".join(f"{key}:{value}" for key, value in said.items())
