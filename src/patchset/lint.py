"""lint: is every patch what a patch here has to be? Says all that is wrong at once."""

import ast
import re
import symtable
import warnings
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

from .errors import Exit, PatchsetError
from .gitrepo import Checkout
from .patchfile import Patch
from .prepare import prepare_tip, touched
from .project import Project
from .selection import dependencies
from .stack import check_source

STATUS = re.compile(r"(Pending|Submitted) https?://\S+|Backport [0-9a-f]{7,40}( .*)?|Inappropriate \S.*")
TRAILERS = ("Feature", "Upstream-Status", "Tested-by")
BLANKS = re.compile(r"[ \t]+\r?$|^ +\t")
IMPORT = re.compile(r"^\s*(?:from ([\w.]+) import (\([^)]*\)|[^\n]+)|import ([\w., ]+))", re.M)


def lint(project: Project) -> list[str]:
    """Check all patches. Returns the frameworks whose source is absent, so that only the files were checked.

    Raises PatchsetError with every fault: BAD_INPUT; CONFLICT or REFUSED where a series does not fit its checkout.
    """
    checkouts, absent = project.checkouts()
    faults: list[str] = []
    for name, patches in project.series.items():
        faults += _numbers(name, patches)
        faults += [f"{patch.shown}: {fault}" for patch in patches for fault in _of_one(project, name, patch)]
        faults += _taken_back(patches)
        if name in checkouts and patches:
            faults += _compile(project, checkouts[name], patches)
    if faults:
        next_step = "mend it in the checkout (git rebase -i patchset/base), then: patchset export"
        raise PatchsetError("\n".join(faults), next_step, Exit.BAD_INPUT)
    return [name for name in absent if project.series[name]]


def _numbers(name: str, patches: list[Patch]) -> list[str]:
    found = [patch.number for patch in patches]
    wanted = list(range(1, len(patches) + 1))
    return (
        [] if found == wanted else [f"patches/{name}: the numbers are {found}, not 1 to {len(patches)} without a gap"]
    )


def _of_one(project: Project, name: str, patch: Patch) -> Iterator[str]:
    for key in TRAILERS:
        if key not in patch.trailers:
            yield f"has no trailer {key}"
    features, feature = project.lock.features, patch.feature
    if feature and feature not in features:
        yield f"Feature: {feature}: the lock has only {', '.join(features)}"
    if feature and not patch.stem.startswith(f"{feature}-"):
        yield f"the file's name should be NNNN-{feature}-<what>.patch, as its Feature says"
    status = patch.trailers.get("Upstream-Status")
    if status and not STATUS.fullmatch(status):
        yield f"Upstream-Status: {status}: not Pending URL, Submitted URL, Backport COMMIT or Inappropriate REASON"
    if (test := patch.trailers.get("Tested-by")) and (fault := _not_one_test(project.root, test)):
        yield f"Tested-by: {test}: {fault}"
    try:
        list(dependencies(project, name, patch))
    except PatchsetError as error:
        yield error.what.removeprefix(f"{patch.shown}: ")
    for file, number, text in _added(patch):
        if BLANKS.search(text):
            yield f"{file}:{number}: blanks at the end of the line, or before a tab"
    yield from _imports(project.root / "src", patch)


def _not_one_test(root: Path, test: str) -> str | None:
    """Why pytest would not run this id, or would run more than one case of it, as far as the file's text tells."""
    path, *names = test.partition("[")[0].split("::")
    if not (root / path).is_file():
        return f"there is no such test: {path} is missing"
    if not names:
        return "it is a file, name one test in it: FILE::TEST"
    try:
        node = ast.parse((root / path).read_text())
    except (SyntaxError, ValueError) as error:
        return f"{path} does not compile: {error}"
    marks = []
    for name in names:
        node = next((each for each in _defined(node) if each.name == name), None)
        if node is None:
            return f"there is no such test: {path} has no {name}"
        marks += map(ast.unparse, node.decorator_list)
    if "[" not in test and any("mark.parametrize(" in mark for mark in marks):
        return "it is parametrised, name one case of it: TEST[ID]"
    return None


def _defined(scope: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """What a module or class defines, also below an if or try."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node
        else:
            yield from _defined(node)


def _added(patch: Patch) -> Iterator[tuple[str, int, str]]:
    for file in patch.diff:
        for line in (line for hunk in file for line in hunk if line.is_added):
            yield file.path, line.target_line_no, line.value.rstrip("\n")


def _imports(source: Path, patch: Patch) -> Iterator[str]:
    """Names of our packages that added lines import and our sources lack. Nothing is imported for it."""
    for file in (file for file in patch.diff if file.path.endswith(".py")):
        text = "".join(line.value for hunk in file for line in hunk if line.is_added)
        for found in IMPORT.finditer(re.sub("#.*", "", text)):
            module, names, plain = found.groups()
            wanted = [(module, each) for each in re.findall(r"(\w+)(?: as \w+)?", names)] if module else []
            wanted += [(each.split()[0], None) for each in (plain or "").split(",") if each.strip()]
            for package, name in wanted:
                ours = (source / package.partition(".")[0]).is_dir()
                if ours and not _exists(source / package.replace(".", "/"), name):
                    shown = f"{package}.{name}" if name else package
                    yield f"{file.path} imports {shown}, which src/ does not have"


def _exists(module: Path, name: str | None) -> bool:
    """Is there such a module, with such a name in it or below it?"""
    code = next((each for each in (module.with_suffix(".py"), module / "__init__.py") if each.is_file()), None)
    if name is None:
        return code is not None
    if _exists(module / name, None):
        return True
    if code is None:
        return False
    table = symtable.symtable(code.read_text(), str(code), "exec")
    return any(each.get_name() == name and (each.is_assigned() or each.is_imported()) for each in table.get_symbols())


def _taken_back(patches: list[Patch]) -> Iterator[str]:
    """Patches that another one undoes wholly."""
    for before, after in combinations(patches, 2):
        if _lines(before, "+", "-") and not _lines(before, "+", "-") - _lines(after, "-", "+"):
            yield f"{before.shown}: {after.shown} takes all of it back"


def _lines(patch: Patch, plus: str, minus: str) -> Counter:
    """Its changed lines, with the signs as given."""
    signs = {"+": plus, "-": minus}
    lines = ((file.path, line) for file in patch.diff for hunk in file for line in hunk)
    return Counter((path, signs[line.line_type], line.value) for path, line in lines if line.line_type in signs)


def _compile(project: Project, checkout: Checkout, patches: list[Patch]) -> list[str]:
    """The patched Python files that are no Python."""
    heads = checkout.heads()
    check_source(project, checkout, heads)
    tip = prepare_tip(checkout, heads, patches)
    faults = []
    for path in (path for path in touched(patches) if path.endswith(".py")):
        content = checkout.blob(tip, path)
        try:
            with warnings.catch_warnings(action="ignore"):
                compile(content or b"", path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            blamed = next(patch.shown for patch in reversed(patches) if path in patch.files)
            faults.append(f"{blamed}: {checkout.name}/{path} does not compile: {error}")
    checkout.close()
    return faults
