"""`jit`: numba's compiler with an on-disk cache that is writable and never stale."""

import hashlib
import os
import tempfile
from pathlib import Path

import numba

_HERE = Path(__file__).resolve().parent


def _sources_digest() -> str:
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(_HERE.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def cache_dir() -> Path:
    """$NUMBA_CACHE_DIR if set, else the first writable of this package's, the user's and the system's temporary folder.

    numba stamps a cached function with the file it stands in, not with those of the functions it calls, so an edited
    callee would be served stale; naming the folder after a digest of all sources rules that out.
    """
    name = f"sam-{_sources_digest()}"
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "qwen3_rl"
    own = [_HERE / "__pycache__", user_cache, Path(tempfile.gettempdir()) / f"qwen3_rl-{os.getuid()}"]
    for parent in [Path(numba.config.CACHE_DIR)] if numba.config.CACHE_DIR else own:
        try:
            (parent / name).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=parent / name):
                return parent / name
        except OSError:
            continue
    raise OSError("no folder for compiled code is writable; set NUMBA_CACHE_DIR to one that is")


_CACHE_DIR = cache_dir()


def jit(function=None, *, inline: str = "never"):
    """`numba.njit` with the cache in `cache_dir()`; numba looks at its setting only while it decorates.

    inline="always" is for the few small functions in the innermost loops: a call passes 7 machine words an array.
    """
    if function is None:
        return lambda wrapped: jit(wrapped, inline=inline)
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(_CACHE_DIR)
    try:
        return numba.njit(cache=True, inline=inline)(function)
    finally:
        numba.config.CACHE_DIR = before
