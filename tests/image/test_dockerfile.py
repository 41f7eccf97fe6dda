"""Dockerfile.qwen3: linted, in step with the lock, and its steps that need no CANN run on a plain Debian root."""

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from patchset.project import find_project

PROJECT = find_project(None)
ROOT = PROJECT.root
DOCKERFILE = ROOT / "Dockerfile.qwen3"
NEEDS_CANN = "scripts/with_cann.sh bash"


@dataclass(frozen=True)
class Step:
    word: str
    rest: str


def steps() -> list[Step]:
    """The Dockerfile's instructions, without comments, continuation lines joined."""
    text = re.sub(r"(?m)^\s*#.*\n", "", DOCKERFILE.read_text()).replace("\\\n", " ")
    return [Step(*line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def test_the_base_image_is_the_locks():
    (base,) = [step.rest for step in steps() if step.rest.startswith("BASE_IMAGE=")]
    image = re.search(r'(?m)^image = "(.+)"', (ROOT / "patches/stack.toml").read_text())[1]
    assert base == f"BASE_IMAGE=quay.io/ascend/{image}"


def test_what_is_copied_is_there():
    for step in steps():
        if step.word == "COPY":
            for name in step.rest.split()[:-1]:
                assert (ROOT / name).exists(), name


def test_layers_go_from_what_seldom_changes_to_what_often_does():
    lines = [f"{step.word} {step.rest}" for step in steps()]
    order = [
        "system_packages.sh;",
        "-r requirements.txt",
        "bash download_fr",
        "bash apply_all",
        "--target npu",
        "COPY . .",
    ]
    found = [next(n for n, line in enumerate(lines) if word in line) for word in order]
    assert found == sorted(found)


def test_nothing_that_git_ignores_gets_into_the_image():
    ignored = {line.strip("/") for line in (ROOT / ".dockerignore").read_text().splitlines()}
    assert {".venv", "frameworks", "outputs", "data", "models", ".git"} <= ignored


def test_with_cann_from_8_5_on(tmp_path):
    for part in ("cann", "nnal/atb"):
        (tmp_path / part).mkdir(parents=True)
        (tmp_path / part / "set_env.sh").write_text(f"export SEEN=$SEEN:{part}\n")
    environment = {"PATH": os.environ["PATH"], "ASCEND_ROOT": str(tmp_path)}
    command = ["bash", ROOT / "scripts/with_cann.sh", "bash", "-c", 'echo "$SEEN"']
    assert subprocess.check_output(command, env=environment, text=True) == ":cann:nnal/atb\n"


def test_with_cann(tmp_path):
    """The command runs in the environment that CANN's scripts made; without CANN the fault is named."""
    script = ROOT / "scripts/with_cann.sh"
    environment = {"PATH": os.environ["PATH"], "ASCEND_ROOT": str(tmp_path)}
    done = subprocess.run(["bash", script, "true"], env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"no {tmp_path}/ascend-toolkit/set_env.sh" in done.stderr
    for part in ("ascend-toolkit", "nnal/atb"):
        (tmp_path / part).mkdir(parents=True)
        (tmp_path / part / "set_env.sh").write_text(f"export SEEN=$SEEN:{part}\n")  # unset at first, as CANN's do
    command = ["bash", script, "bash", "-c", 'echo "$SEEN $LD_LIBRARY_PATH $1"; exit 3', "-", "a b"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (
        done.stdout
        == f":ascend-toolkit:nnal/atb {tmp_path}/ascend-toolkit/latest/{os.uname().machine}-linux/devlib a b\n"
    )
    assert done.returncode == 3


@pytest.fixture
def debian_root():
    """A minimal Debian with Python 3.11 to be installed in it, as a folder to chroot into."""
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        pytest.skip("needs root and debootstrap (apt-get install debootstrap)")
    folder = Path(tempfile.mkdtemp(prefix="qwen3-rl-debian-"))
    try:
        done = subprocess.run(
            ["debootstrap", "--variant=minbase", "bookworm", folder], capture_output=True, text=True, errors="replace"
        )
        if done.returncode != 0:
            pytest.skip(f"debootstrap: {done.stdout.splitlines()[-1:]} {done.stderr.splitlines()[-1:]}")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Build:
    """Carries out a Dockerfile's instructions in a folder: COPY copies, RUN runs in a chroot, ENV and ARG set."""

    def __init__(self, root: Path):
        self.root = root
        self.environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
        self.folder = "/"
        self.use_this_machines_network()

    def use_this_machines_network(self) -> None:
        """pip's and git's settings as build arguments would give them; the certificates that they name, too."""
        shutil.copy("/etc/resolv.conf", self.root / "etc/resolv.conf")
        for name in ("PIP_CERT", "GIT_SSL_CAINFO", "PIP_INDEX_URL", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
            if value := os.environ.get(name):
                if Path(value).is_file():
                    shutil.copy(value, self.root / f"{name}.crt")
                    value = f"/{name}.crt"
                self.environment[name] = value

    def run(self, command: str) -> str:
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        done = subprocess.run(
            ["chroot", self.root, "env", "-i", "-C", self.folder, *variables, "/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}"
        return done.stdout

    def copy(self, names: list[str], to: str) -> None:
        target = self.root / self.folder.lstrip("/") / to
        for name in names:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
                continue
            into = target / source.name if to.endswith("/") else target
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, into)

    def carry_out(self, step: Step) -> None:
        if step.word == "WORKDIR":
            self.folder = step.rest
            (self.root / step.rest.lstrip("/")).mkdir(parents=True)
        elif step.word == "COPY":
            *names, to = step.rest.split()
            self.copy(names, to)
        elif step.word in ("ENV", "ARG"):
            name, equals, value = step.rest.partition("=")
            if equals:
                self.environment.setdefault(name, value.replace("$PATH", self.environment["PATH"]))
        elif step.word == "RUN":
            self.run(re.sub(r"--mount=\S+", "", step.rest))


def test_the_steps_before_cann_on_a_plain_debian(debian_root):
    """System packages, Python packages (three of them: torch alone is gigabytes), sources and patches; and what the
    build step would run can be imported from what was copied by then."""
    build = Build(debian_root)
    cache = PROJECT.frameworks / ".cache"
    if cache.is_dir():  # downloads are kept there; the same sdists need not be fetched twice
        shutil.copytree(cache, debian_root / "opt/frameworks/.cache")
    for step in steps():
        if NEEDS_CANN in step.rest:
            break
        if step.word == "FROM":
            continue
        build.carry_out(step)
        if step.rest.startswith("requirements.txt"):
            path = debian_root / "opt/qwen3-rl/requirements.txt"
            few = [line for line in path.read_text().splitlines() if line.startswith(("hydra-core", "ijson", "orjson"))]
            assert len(few) == 3
            path.write_text("\n".join(few))
    status = build.run(".venv/bin/patchset status")
    assert re.search(r"(?m)^verl +applied", status)
    assert re.search(r"(?m)^vllm +applied", status)
    commands = build.run(".venv/bin/qwen3-rl build --target npu --dry-run")
    assert "/opt/frameworks/vllm-ascend" in commands
    assert "ijson" in build.run(".venv/bin/python -m pip list")
