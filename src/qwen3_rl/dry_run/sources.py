"""What the checkouts accept, read from their source text: most of them cannot be imported here, none needs to be."""

import ast
import functools
import re
from pathlib import Path


@functools.cache
def class_fields(file: Path, name: str) -> dict[str, str]:
    """Annotated fields of class ``name`` in ``file`` and the text of their defaults; {} if there is no such class."""
    if not file.is_file():
        return {}
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return {
                item.target.id: ast.unparse(item.value) if item.value else ""
                for item in node.body
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
            }
    return {}


@functools.cache
def literal_values(file: Path, name: str) -> frozenset[str]:
    """The strings of ``name = Literal[...]`` in ``file``, without those of other names in it."""
    if not file.is_file():
        return frozenset()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            return frozenset(
                item.value for item in ast.walk(node.value) if isinstance(item, ast.Constant) and item.value
            )
    return frozenset()


@functools.cache
def words_in(folder: Path) -> frozenset[str]:
    """Every identifier, also inside strings, of the Python files below ``folder``."""
    found: set[str] = set()
    for file in folder.rglob("*.py"):
        found.update(re.findall(r"[A-Za-z_]\w*", file.read_text(errors="replace")))
    return frozenset(found)


@functools.cache
def option_names(folder: Path) -> frozenset[str]:
    """The options that the Python files below ``folder`` hand to argparse (swap_optimizer, ...)."""
    found: set[str] = set()
    for file in folder.rglob("*.py"):
        found.update(re.findall(r"""add_argument\(\s*["']--([\w-]+)["']""", file.read_text(errors="replace")))
    return frozenset(name.replace("-", "_") for name in found)
