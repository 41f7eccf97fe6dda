"""Stub libraries for a machine without CUDA and without CANN, so that the wheels of torch and torch_npu can be loaded.

    python stubs.py SITE_PACKAGES

Every shared library that a file of torch or torch_npu names and that nothing provides is compiled with gcc from what
those files ask of it. A call of a stub returns an error and does nothing else.
"""

import ctypes
import re
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

NO_CUDA_DEVICE = 100  # cudaErrorNoDevice, CUDA_ERROR_NO_DEVICE
NO_CANN = 107000  # ACL_ERROR_RT_PARAM_INVALID
TEXTS = {"aclGetRecentErrMsg"}  # these return a C string, which callers print
OPENED = {"libopapi.so"}  # opened by name at import, so no file names them
MESSAGE = "this CANN is a stub: there is no NPU"


@dataclass
class Elf:
    """What one shared library needs and offers."""

    path: Path
    needed: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)  # symbol version -> library that must define it
    undefined: set[tuple[str, str]] = field(default_factory=set)  # (symbol, version or "")
    defined: set[str] = field(default_factory=set)


def read(path: Path) -> Elf:
    """One readelf of the dynamic section, the version needs and the dynamic symbols."""
    text = subprocess.run(["readelf", "-W", "-d", "-V", "--dyn-syms", path], capture_output=True, text=True).stdout
    elf = Elf(path)
    library = ""
    for line in text.splitlines():
        if match := re.search(r"\(NEEDED\).*\[(.+)\]", line):
            elf.needed.append(match[1])
        elif match := re.search(r"Version: \d+  File: (\S+)", line):
            library = match[1]
        elif match := re.search(r"  Name: (\S+)  Flags: .*Version: \d+", line):
            elf.versions[match[1]] = library
        elif match := re.match(r" *\d+: [0-9a-f]+ +\S+ +\S+ +(\S+) +\S+ +(\S+) +([^@ ]+)(?:@@?(\S+))?", line):
            binding, section, name, version = match.groups()
            if section != "UND":
                elf.defined.add(name)
            elif binding != "WEAK":
                elf.undefined.add((name, version or ""))
    return elf


def load(library: str) -> ctypes.CDLL | None:
    """A library of this machine, or None where there is none of that name."""
    try:
        return ctypes.CDLL(library)
    except OSError:
        return None


def missing_symbols(elfs: list[Elf]) -> dict[str, set[tuple[str, str]]]:
    """{library that is missing: the (symbol, version) pairs that it must define}."""
    scanned = {elf.path.name for elf in elfs}
    outside = {name: load(name) for name in {name for elf in elfs for name in elf.needed} - scanned}
    wanted: dict[str, set[tuple[str, str]]] = {name: set() for name, handle in outside.items() if handle is None}
    defined = set().union(*(elf.defined for elf in elfs))
    # The interpreter with its C library, and the machine's own libraries.
    handles = [ctypes.CDLL(None), *(handle for handle in outside.values() if handle)]
    for elf in elfs:
        absent = [name for name in elf.needed if name in wanted]
        for symbol, version in elf.undefined:
            if version and elf.versions[version] in wanted:
                wanted[elf.versions[version]].add((symbol, version))
            elif not version and absent and symbol not in defined and not any(hasattr(h, symbol) for h in handles):
                wanted[absent[0]].add((symbol, ""))
    return wanted


def source(symbols: set[tuple[str, str]], error: int) -> tuple[str, str]:
    """C source and linker version script of one stub library."""
    lines, nodes = [], defaultdict(list)
    for number, (symbol, version) in enumerate(sorted(symbols)):
        nodes[version].append(symbol)
        body = f'const char *f{number}(void) asm("{symbol}"); const char *f{number}(void) {{ return "{MESSAGE}"; }}'
        if symbol not in TEXTS:
            body = f'long f{number}(void) asm("{symbol}"); long f{number}(void) {{ return {error}; }}'
        lines.append(body)
    nodes.pop("", None)
    script = "".join(f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in nodes.items())
    return "\n".join(lines) + "\n", script


def compile_stub(folder: Path, library: str, symbols: set[tuple[str, str]], error: int) -> None:
    code, script = source(symbols, error)
    argv = ["gcc", "-shared", "-fPIC", "-O0", "-x", "c", "-", "-o", folder / library, f"-Wl,-soname,{library}"]
    versions = folder / f"{library}.map"
    if script:
        versions.write_text(script)
        argv.append(f"-Wl,--version-script={versions}")
    subprocess.run(argv, input=code, text=True, check=True)
    versions.unlink(missing_ok=True)


def main() -> None:
    site = Path(sys.argv[1])
    folders = {"torch": (site / "torch" / "lib", NO_CUDA_DEVICE), "torch_npu": (site / "torch_npu" / "lib", NO_CANN)}
    files = [path for name in folders for path in sorted((site / name).rglob("*.so*")) if path.is_file()]
    with ThreadPoolExecutor() as pool:
        elfs = list(pool.map(read, files))
    wanted = missing_symbols(elfs)
    wanted.update((library, set()) for library in OPENED)
    for library, symbols in sorted(wanted.items()):
        needs = {elf.path.relative_to(site).parts[0] for elf in elfs if library in elf.needed}
        folder, error = folders["torch" if "torch" in needs else "torch_npu"]
        compile_stub(folder, library, symbols, error)
    print(f"{len(wanted)} stub libraries, {sum(map(len, wanted.values()))} symbols")


if __name__ == "__main__":
    main()
