"""run_container.sh against a host's files made here and a docker that prints its arguments."""

import itertools
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from patchset.project import find_project

SCRIPT = find_project(None).root / "run_container.sh"
CONTROL = ("davinci_manager", "devmm_svm", "hisi_hdc")


@pytest.fixture
def host(tmp_path):
    """A host with three dies, not numbered through, and a driver."""
    root = tmp_path / "host root"
    (root / "dev").mkdir(parents=True)
    for name in ("davinci0", "davinci3", "davinci15", *CONTROL, "davinci_other"):
        (root / "dev" / name).touch()
    for folder in ("usr/local/Ascend/driver", "usr/local/dcmi", "usr/local/bin", "etc"):
        (root / folder).mkdir(parents=True)
    (root / "usr/local/bin/npu-smi").touch()
    (root / "etc/hccn.conf").touch()
    return root


def run(host: Path | None, *arguments: str, docker: str = "", **environment: str) -> subprocess.CompletedProcess:
    path = os.environ["PATH"]
    if docker:
        folder = host.parent / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "docker").write_text(f"#!/bin/bash\n{docker}\n")
        (folder / "docker").chmod(0o755)
        path = f"{folder}:{path}"
    return subprocess.run(
        ["bash", SCRIPT, *arguments],
        env={"PATH": path, **({"HOST_ROOT": str(host)} if host else {}), **environment},
        capture_output=True,
        text=True,
    )


def options(words: list[str], name: str) -> list[str]:
    return [value for option, value in itertools.pairwise(words) if option == name]


def test_devices_and_folders_are_found(host):
    done = run(host, "--dry-run", "train", "qwen3-rl:latest")
    assert done.returncode == 0, done.stderr
    words = shlex.split(done.stdout)
    assert words[:2] == ["docker", "run"]
    assert words[-3:] == ["qwen3-rl:latest", "sleep", "infinity"]
    assert options(words, "--name") == ["train"]
    devices = ["davinci0", "davinci15", "davinci3", *CONTROL]
    assert options(words, "--device") == [f"/dev/{name}" for name in devices]
    assert options(words, "--volume") == [
        f"{path}:{path}:ro"
        for path in ("/usr/local/Ascend/driver", "/usr/local/dcmi", "/usr/local/bin/npu-smi", "/etc/hccn.conf")
    ]
    assert "--privileged" not in words


def test_docker_gets_the_very_words(host):
    arguments = ["--privileged", "train", "an/image:1", "-v", "/my data:/data", "-e", "A=$B c"]
    planned = shlex.split(run(host, "--dry-run", *arguments).stdout)
    done = run(host, *arguments, docker='printf "%s\\n" "$@" >&2', SHM_SIZE="1g")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [word if word != "64g" else "1g" for word in planned[1:]]
    assert "--privileged" in planned
    assert options(planned, "-v") == ["/my data:/data"]
    assert options(planned, "-e") == ["A=$B c"]
    assert done.stdout == "3 dies; enter with: docker exec -it train bash\n"


def test_dockers_exit_code_is_passed_on(host):
    done = run(host, "train", "image", docker="echo taken >&2; exit 125")
    assert done.returncode == 125
    assert "enter with" not in done.stdout


def test_a_dry_run_starts_nothing(host):
    assert run(host, "--dry-run", "train", "image", docker="touch $0.called").returncode == 0
    assert not (host.parent / "bin/docker.called").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "NAME and IMAGE are needed"),
        (["train"], "NAME and IMAGE are needed"),
        (["--dry-run"], "NAME and IMAGE are needed"),
        (["--privilege", "train", "image"], "unknown option --privilege"),
        (["a b", "image"], "a b is no container name"),
        (["train", "--privileged"], "--privileged is no image"),
    ],
)
def test_wrong_usage(host, arguments, message):
    done = run(host, *arguments, docker="exit 99")
    assert done.returncode == 2
    assert message in done.stderr
    assert " next: " in done.stderr


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("dev/davinci[0-9]*", "this host has no NPU"),
        ("dev/hisi_hdc", "hisi_hdc is missing"),
        ("usr/local/Ascend/driver", "no {}/usr/local/Ascend/driver"),
    ],
)
def test_a_host_without_npu_or_driver(host, missing, message):
    for path in host.glob(missing):
        path.rmdir() if path.is_dir() else path.unlink()
    done = run(host, "train", "image", docker="exit 99")
    assert done.returncode == 2
    assert message.format(host) in done.stderr


def test_this_machine_or_a_clear_word(tmp_path):
    """Without HOST_ROOT the machine's own /dev is read."""
    done = run(None, "--dry-run", "train", "image")
    dies = list(Path("/dev").glob("davinci[0-9]*"))
    assert (done.returncode == 0) == bool(dies)
    assert dies or "no /dev/davinci*" in done.stderr
