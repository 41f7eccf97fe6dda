"""fetch: make the checkouts that are missing, in parallel, each from the first source that works."""

import queue
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from .bundle import Bundle
from .errors import Cancelled, Exit, PatchsetError, Unavailable, system_hint
from .gitrepo import Checkout, init_checkout, is_absent, open_checkout
from .gitsource import Network, fetch_git
from .lock import Framework
from .progress import Lines
from .project import Project, exclusive
from .sdist import download, import_sdist
from .stack import check_source

STOP_LIMIT = 1.0  # how long Ctrl-C waits for a worker; what it leaves is removed


@dataclass(frozen=True)
class Outcome:
    """What became of one framework: here (already), fetched, absent (its sources are closed), failed."""

    name: str
    state: str
    detail: str
    reasons: list[str] = field(default_factory=list)
    code: Exit = Exit.OK


def fetch(project: Project, only: list[str], source: str | Bundle | None, lines: Lines) -> list[Outcome]:
    """Make every missing checkout (or those named in `only`), from any source, only `git` or `sdist`, or a bundle.

    Never raises for one framework's fault: that is its Outcome. Raises PatchsetError (BUSY) and KeyboardInterrupt; then
    nothing half-made is left.
    """
    names = [name for name in project.lock.frameworks if not only or name in only]
    with exclusive(project):
        _remove_leftovers(project)
        network = Network()
        ended: queue.Queue[Outcome | BaseException] = queue.Queue()

        def work(name: str) -> None:
            try:
                outcome = _fetch_one(project, name, source, network, lines)
            except PatchsetError as error:
                if network.stopped_soon():
                    ended.put(Cancelled())
                    return
                outcome = Outcome(name, "failed", error.what, [error.next_step], error.code)
            except OSError as error:
                outcome = Outcome(name, "failed", str(error), [system_hint(error)], Exit.SYSTEM)
            except BaseException as error:  # Cancelled, or a fault of ours
                ended.put(error)
                return
            try:
                lines.say(name, f"{outcome.state}: {outcome.detail}", done=True)
            finally:  # also where nobody reads what is said any more
                ended.put(outcome)

        for name in names:
            # Daemons: a worker that hangs in a slow read must not keep an interrupted process alive.
            threading.Thread(target=work, args=(name,), daemon=True).start()
        outcomes = []
        try:
            # A queue, because Python 3.11 takes a thread for ended once Ctrl-C has interrupted its `join`.
            while len(outcomes) < len(names):
                outcomes.append(ended.get())
                if isinstance(outcomes[-1], BaseException):
                    raise outcomes[-1]
        except BaseException:
            network.stop()
            with suppress(queue.Empty):
                for _ in range(len(names) - len(outcomes)):
                    ended.get(timeout=STOP_LIMIT)
            raise
        finally:
            _remove_leftovers(project)
    return sorted(outcomes, key=lambda outcome: names.index(outcome.name))


def _remove_leftovers(project: Project) -> None:
    """Remove what an unfinished fetch has left; no other is at work, because this process holds the lock."""
    for folder in project.frameworks.glob(".tmp-*"):
        shutil.rmtree(folder, ignore_errors=True)
    for part in project.frameworks.glob(".cache/*.part"):
        part.unlink(missing_ok=True)


def _fetch_one(project: Project, name: str, source: str | Bundle | None, network: Network, lines: Lines) -> Outcome:
    framework = project.lock.frameworks[name]
    path = project.path(name)
    if not is_absent(path):
        return _already_here(project, name, source)
    reasons = []
    for shown, make in _sources(project, framework, source, network, partial(lines.say, name)):
        lines.say(name, f"tries {shown}")
        # Beside its final place, so that the rename at the end is one step within one disk.
        draft = Path(tempfile.mkdtemp(prefix=f".tmp-{name}-", dir=project.frameworks))
        try:
            make(init_checkout(draft, name), partial(lines.advance, name))
            draft.chmod(0o755)  # mkdtemp's folders are the user's alone
            draft.rename(path)
            return Outcome(name, "fetched", f"{framework.version} from {shown}")
        except Unavailable as error:
            reasons.append(f"{shown}: {error.what}")
            lines.say(name, reasons[-1])
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    if framework.sdist:
        return Outcome(name, "failed", "no source could be had", reasons, Exit.SOURCE)
    return Outcome(name, "absent", "no source could be reached, and it has no sdist", reasons)


def _sources(
    project: Project,
    framework: Framework,
    source: str | Bundle | None,
    network: Network,
    say: Callable[[str], None],
) -> Iterator[tuple[str, Callable[[Checkout, Callable[[str], None]], None]]]:
    """Every source to try, by name, and what makes an empty checkout of it."""
    cache = project.frameworks / ".cache"
    if isinstance(source, Bundle):
        yield str(source.path), lambda checkout, _: source.unpack(checkout, framework, network, cache, say)
        return
    for url in framework.sources if source != "sdist" else []:
        yield url, lambda checkout, show, url=url: fetch_git(checkout, framework, url, network, show)
    sdist = framework.sdist
    if sdist and source != "git":
        yield (
            sdist.file,
            lambda checkout, show: import_sdist(checkout, download(sdist, cache, network, show, say), sdist, network),
        )


def _already_here(project: Project, name: str, source: str | Bundle | None) -> Outcome:
    checkout = open_checkout(project.path(name))
    heads = checkout.heads()
    check_source(project, checkout, heads)
    kind = heads.source.partition("-")[0]
    if isinstance(source, str) and kind != source:
        raise PatchsetError(
            f"{checkout.path} is there already, but made from {kind}",
            f"move it away, then run: patchset fetch --only {name} --source {source}",
            Exit.REFUSED,
        )
    return Outcome(name, "here", f"{project.lock.frameworks[name].version} is already here ({kind})")
