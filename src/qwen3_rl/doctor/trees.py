"""The patched trees: what the lock says they are, and what this Python imports."""

from collections.abc import Iterator

from patchset.project import Project
from patchset.status import FrameworkStatus, status
from patchset.verify import verify
from qwen3_rl.doctor.findings import Finding, fault, note, ok
from qwen3_rl.errors import UserError
from qwen3_rl.launch.attest import REQUIRED, check_import


def check_trees(project: Project, npu: bool) -> Iterator[Finding]:
    """Every file of every checkout is read anew. With ``npu``, vllm-ascend must be installed too."""
    states = {framework.name: framework for framework in status(project)}
    for verdict in verify(project):
        framework = states[verdict.name]
        if verdict.right is None and verdict.name in REQUIRED:
            yield fault(verdict.name, "absent", "the patched tree", framework.next_step or "patchset fetch")
        elif verdict.right is None:
            yield note(verdict.name, "absent", "", framework.next_step or "")
        elif not verdict.right:
            yield fault(verdict.name, verdict.detail, "the patched tree", framework.next_step or "patchset status")
        else:
            yield _imported(project, framework, verdict.detail, npu and framework.name == "vllm-ascend")


def _imported(project: Project, framework: FrameworkStatus, detail: str, required: bool) -> Finding:
    try:
        line = check_import(project, framework)
    except UserError as error:
        return fault(framework.name, error.what, "the patched tree", error.next_step)
    if line is None and required:
        return fault(framework.name, "not installed", "installed", "bash build_project.sh --target npu")
    if line is None:
        return note(framework.name, f"{detail}; not installed")
    return ok(framework.name, detail, "the patched tree")
