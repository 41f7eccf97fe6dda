"""Small functions over git: one class that runs it in one checkout, and an environment that cannot surprise it."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

# GitPython would raise at import where git is missing; the first use reports that better.
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
from git import Git, GitCommandNotFound

from .errors import Exit, PatchsetError, quoted

BASE = "refs/tags/patchset/base"
BRANCH = "refs/heads/patched"
STACKS = "refs/patchset/stack/"
SOURCES = "refs/patchset/source/"
# While the lock of `project.exclusive` is in here, a git that outlives its killed command holds it until it has ended.
INHERITED: set[int] = set()
BUSY_STATES = ("rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG")

# The caller's git variables that say how to reach a network or whom to trust. All others (GIT_DIR, GIT_INDEX_FILE,
# ... as set inside a hook) would turn our commands on another repository.
KEPT = re.compile(
    r"GIT_(SSL|SSH|PROXY|HTTP|TRACE|CURL|PYTHON)\w*|GIT_CONFIG_(GLOBAL|SYSTEM|NOSYSTEM|COUNT|KEY|VALUE)\w*"
)

# Over the user's own configuration, which otherwise holds (proxies, url.*.insteadOf, certificates).
OVERRIDES = {
    "core.autocrlf": "false",  # trees are byte-exact
    "core.safecrlf": "false",
    "core.attributesFile": os.devnull,  # a user's global attributes may name filters
    "core.hooksPath": os.devnull,  # no hook of a user or a template runs here
    "core.fsmonitor": "false",
    "core.commitGraph": "false",
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    "gc.auto": "0",  # no background process may outlive a command and hold files open
    "maintenance.auto": "false",
    "submodule.recurse": "false",
    "apply.whitespace": "nowarn",  # whitespace is the linter's matter
    "apply.ignoreWhitespace": "no",  # an exact match or none
    "i18n.commitEncoding": "utf-8",
    "advice.detachedHead": "false",
    "core.logAllRefUpdates": "true",  # export asks the branch's log what was applied last
    "blame.ignoreRevsFile": "",
}


def harden_environment() -> None:
    """Clean this process's environment for every git that it will start; call once, at the start."""
    for key in [key for key in os.environ if key.startswith("GIT_") and not KEPT.fullmatch(key)]:
        del os.environ[key]
    given = os.environ.get("GIT_CONFIG_COUNT", "")
    count = int(given) if given.isdigit() else 0
    if os.environ.get(f"GIT_CONFIG_KEY_{count - 1}") != list(OVERRIDES)[-1]:  # or it was done before
        for i, (key, value) in enumerate(OVERRIDES.items(), count):
            os.environ[f"GIT_CONFIG_KEY_{i}"] = key
            os.environ[f"GIT_CONFIG_VALUE_{i}"] = value
        os.environ["GIT_CONFIG_COUNT"] = str(count + len(OVERRIDES))
    # Never ask for a password: a missing repository makes some hosts ask for one.
    # No optional locks: killed, `git status` would leave an index.lock, and only a switch's is known to be ours.
    os.environ.update(GIT_TERMINAL_PROMPT="0", GIT_ASKPASS="true", GIT_OPTIONAL_LOCKS="0", LC_ALL="C")


class GitError(PatchsetError):
    """A git command that failed, with what it said; `stderr` is for callers that know the failure."""

    def __init__(self, where: Path, args: tuple[str, ...], stderr: str) -> None:
        self.stderr = stderr.strip()
        # git does not always pass the system's words on.
        self.disk_full = "No space left on device" in stderr or shutil.disk_usage(where).free < 2**17
        next_step = (
            f"free some space on the disk of {where}"
            if self.disk_full
            else f"see what git says there: git -C {quoted(where)} fsck"
        )
        super().__init__(f"git {args[0]} failed in {where}: {self.stderr}", next_step, Exit.SYSTEM)


@dataclass(frozen=True)
class Heads:
    """Where the refs of a checkout stand.

    `source` is what the base was made of, `git-COMMIT` or `sdist-SHA256`; `tips` are the commits that patchset made.
    """

    head: str
    base: str
    source: str
    branch: str | None
    tips: dict[str, str]

    @property
    def ours(self) -> set[str]:
        return {self.base, *self.tips.values()}


class Checkout:
    """One framework's git repository. Every method raises GitError where git fails."""

    def __init__(self, path: Path, name: str | None = None) -> None:
        self.path = path
        self.name = name or path.name
        # Named outright, git never walks up to a repository around this one (where `git apply` would silently skip
        # every file), and never asks whether the folder's owner is this user (a container's root is often another).
        self._env = {"GIT_DIR": str(path / ".git"), "GIT_WORK_TREE": str(path)}
        self._git = Git(path)
        self._git.update_environment(**self._env)

    def run(self, *args: str, data: bytes | None = None, env: Mapping[str, str] | None = None) -> str:
        """Run one git command, feed it `data`, return its output without the last newline."""
        with tempfile.TemporaryFile() if data else nullcontext() as feed:
            if data:
                feed.write(data)
                feed.seek(0)
            try:
                status, out, err = self._git.execute(
                    ["git", *args],
                    istream=feed,
                    with_extended_output=True,
                    with_exceptions=False,
                    env=env,
                    pass_fds=tuple(INHERITED),
                )
            except GitCommandNotFound as error:
                raise PatchsetError("git was not found", "install git 2.31 or newer", Exit.SYSTEM) from error
        if status:
            raise GitError(self.path, args, err)
        return out

    def paths(self, *args: str, env: Mapping[str, str] | None = None) -> list[str]:
        """Run a git command that prints paths, each ended by NUL."""
        return [path for path in self.run(*args, env=env).split("\0") if path]

    def tree(self, commit: str) -> str:
        return self.run("rev-parse", f"{commit}^{{tree}}")

    def start(self, *args: str, **popen) -> subprocess.Popen:
        """Start a git command whose streams the caller reads or writes."""
        return subprocess.Popen(["git", *args], cwd=self.path, env={**os.environ, **self._env}, **popen)

    def pack(self, target: Path, *args: str) -> None:
        """Write the objects of commits (without their history), or of some paths in them, as a pack."""
        objects = self.run("rev-list", "--objects", "--no-walk", *args)
        with target.open("wb") as sink, tempfile.TemporaryFile() as feed:
            feed.write(objects.encode("utf-8", "surrogateescape") + b"\n")
            feed.seek(0)
            process = self.start("pack-objects", "-q", "--stdout", stdin=feed, stdout=sink, stderr=subprocess.PIPE)
            said = process.communicate()[1]
        if process.returncode:
            raise GitError(self.path, ("pack-objects",), said.decode("utf-8", "replace"))

    def close(self) -> None:
        """End the helper processes that `blob` keeps."""
        self._git.clear_cache()

    def blob(self, commit: str, path: str) -> bytes | None:
        """The content of `path` in `commit`, None where it is not there."""
        try:
            # One `git cat-file --batch` process serves all calls.
            return self._git.get_object_data(f"{commit}:{path}")[3]
        except ValueError:
            return None

    def heads(self) -> Heads:
        """HEAD, the base tag, the branch and our tips, read at once."""
        refs = {}
        for line in self.run("show-ref", "--head").splitlines():
            commit, _, ref = line.partition(" ")
            refs[ref] = commit
        if BASE not in refs:
            raise GitError(self.path, ("show-ref",), f"{BASE} is damaged")
        tips = {ref.removeprefix(STACKS): commit for ref, commit in refs.items() if ref.startswith(STACKS)}
        sources = [ref.removeprefix(SOURCES) for ref in refs if ref.startswith(SOURCES) and refs[ref] == refs[BASE]]
        return Heads(refs.get("HEAD", ""), refs[BASE], sources[0] if sources else "", refs.get(BRANCH), tips)

    @contextmanager
    def own_index(self, commit: str, paths: list[str] | None = None) -> Iterator[dict[str, str]]:
        """An index that holds `commit`, as environment for `run`; the checkout's own index is left alone.

        With `paths`, these only and what is in their way: git reads and writes the whole index in every command.
        """
        index = self.path / ".git" / f"patchset-index-{os.getpid()}"
        own = {"GIT_INDEX_FILE": str(index)}
        index.unlink(missing_ok=True)  # left by a command that was killed and had this number
        try:
            if paths is None:
                self.run("read-tree", commit, env=own)
            else:
                entries = _concerning(self.paths("ls-tree", "-r", "-z", commit), paths)
                self.run("update-index", "-z", "--index-info", data=os.fsencode("".join(entries)), env=own)
            yield own
        finally:
            for left in (index, index.with_name(index.name + ".lock")):
                left.unlink(missing_ok=True)

    def entries(self, env: Mapping[str, str]) -> dict[str, str]:
        """What an index holds: path to `MODE HASH`."""
        found = (entry.split("\t", 1) for entry in self.paths("ls-files", "--stage", "-z", env=env))
        return {path: words.rpartition(" ")[0] for words, path in found}

    def staged(self, env: Mapping[str, str], path: str) -> bytes | None:
        """The content of `path` in an index, None where it is not there."""
        entry = self.entries(env).get(path)
        return self._git.get_object_data(entry.split()[1])[3] if entry else None

    def dirty(self, env: Mapping[str, str] | None = None) -> list[str]:
        """Tracked files that differ from HEAD, in the index or the work tree."""
        # -z: names unquoted. --no-renames: one path an entry. Untracked files are the user's; a submodule's inside is
        # its own matter.
        listing = ("status", "--porcelain", "-z", "--untracked-files=no", "--no-renames", "--ignore-submodules=dirty")
        entries = self.paths(*listing, env=env)
        if env is None and self.hidden():
            with self.own_index("HEAD") as own:  # without the flags
                entries += self.paths(*listing, env=own)
        return sorted({entry[3:] for entry in entries})

    def hidden(self) -> dict[str, str]:
        """Tracked files at which git does not look, and the option that takes this flag off."""
        found = {}
        for entry in self.paths("ls-files", "-v", "-z"):
            tag, path = entry[0], entry[2:]
            if tag.islower():
                found[path] = "--no-assume-unchanged"
            if tag in "Ss":
                found[path] = "--no-skip-worktree"
        return found

    def hidden_faults(self) -> list[str]:
        """The same as sentences that hold the command to run."""
        return [
            f"{self.path}/{path} is hidden from git: git -C {quoted(self.path)} update-index {option} "
            + shlex.quote(path)
            for path, option in sorted(self.hidden().items())
        ]

    def changed(self, old: str, new: str) -> dict[str, str]:
        """What differs between two commits: path to A, M, D or T."""
        if old == new:
            return {}
        # -r: files, not folders. Renames show as D and A.
        words = self.paths("diff-tree", "-r", "-z", "--no-renames", "--name-status", old, new)
        return dict(zip(words[1::2], words[0::2], strict=True))

    def submodules(self, commit: str) -> dict[str, str]:
        """Paths of the submodules to their commits."""
        entries = self.paths("ls-tree", "-r", "-z", commit)
        return {
            path: words.split()[2] for words, path in (each.split("\t", 1) for each in entries) if "commit" in words
        }

    def contains(self, commit: str, ancestor: str) -> bool:
        """Does `commit` stand on `ancestor`?"""
        return self.run("rev-list", "--max-count=1", f"{commit}..{ancestor}") == ""

    def busy_state(self) -> str | None:
        """The name of a rebase, merge, ... that somebody has begun here."""
        return next((state for state in BUSY_STATES if (self.path / ".git" / state).exists()), None)


def _concerning(entries: list[str], paths: list[str]) -> Iterator[str]:
    """Those of a tree's entries that are one of `paths`, stand where one needs a folder, or lie below one."""
    wanted = {*paths, *(str(folder) for path in paths for folder in PurePosixPath(path).parents)}
    below = tuple(f"{path}/" for path in paths)
    for entry in entries:
        path = entry.partition("\t")[2]
        if path in wanted or path.startswith(below):
            yield entry + "\0"


def init_checkout(path: Path, name: str | None = None) -> Checkout:
    """Make an empty repository whose files will be exactly git's bytes, whatever an upstream .gitattributes says."""
    checkout = Checkout(path, name)
    # --template=: nothing of the user's template; --object-format: a user's default may be sha256.
    checkout.run("init", "--quiet", "--template=", "--object-format=sha1", "--initial-branch=patched")
    info = path / ".git" / "info"
    info.mkdir(exist_ok=True)
    # This file outranks every .gitattributes: no line-ending conversion, no keyword, no LFS or other filter.
    (info / "attributes").write_text("* -text -eol -ident -filter -working-tree-encoding\n")
    return checkout


def set_base(checkout: Checkout, commit: str, source: str) -> None:
    """Tag the base and say what it was made of; the files become it."""
    checkout.run("update-ref", BASE, commit)
    checkout.run("update-ref", f"{SOURCES}{source}", commit)
    checkout.run("checkout", "--quiet", "--detach", commit)


def is_absent(path: Path) -> bool:
    """True where there is no checkout: nothing, or an empty folder."""
    return not os.path.lexists(path) or (path.is_dir() and not any(path.iterdir()))


def open_checkout(path: Path) -> Checkout:
    """Open a checkout that `patchset fetch` made. Raises PatchsetError (REFUSED) for any other folder."""
    checkout = Checkout(path)
    if (path / ".git" / BASE).is_file():  # the usual case; git itself may have packed the ref
        return checkout
    if (path / ".git").is_dir():
        try:
            checkout.run("rev-parse", "--verify", "--quiet", BASE)
            return checkout
        except GitError:
            pass
    raise PatchsetError(
        f"{path} is not a checkout that `patchset fetch` made; git there would act on a repository around it",
        f"move {quoted(path)} away, then run: patchset fetch --only {path.name}",
        Exit.REFUSED,
    )
