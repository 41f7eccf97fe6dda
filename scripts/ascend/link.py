"""Puts the patched checkouts, this project's source and the doubles onto the harness's import path.

    python link.py SITE_PACKAGES PROJECT FRAMEWORKS

The checkouts are used in place and nothing is written into them: their names, versions and entry points, which vLLM
chooses its platform by, are put beside the installed packages.
"""

import ast
import shutil
import sys
from pathlib import Path

VERSION = "0.13.0"


def entry_points(setup: Path) -> dict[str, list[str]]:
    """The entry_points argument of a setup.py."""
    for node in ast.walk(ast.parse(setup.read_text())):
        if isinstance(node, ast.keyword) and node.arg == "entry_points":
            return ast.literal_eval(node.value)
    raise SystemExit(f"error: {setup} names no entry points")


def write_metadata(site: Path, name: str, groups: dict[str, list[str]]) -> None:
    folder = site / f"{name}-{VERSION}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {VERSION}\n")
    lines = [line for group, entries in groups.items() for line in (f"[{group}]", *entries)]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")


def main() -> None:
    site, project, frameworks = map(Path, sys.argv[1:])
    paths = [frameworks / "vllm-ascend", frameworks / "vllm", project / "src"]
    write_metadata(site, "vllm", {})
    write_metadata(site, "vllm_ascend", entry_points(paths[0] / "setup.py"))
    shutil.copytree(Path(__file__).with_name("site"), site, dirs_exist_ok=True)
    (site / "ascend_harness.pth").write_text("".join(f"{path}\n" for path in paths) + "import ascend_harness\n")


if __name__ == "__main__":
    main()
