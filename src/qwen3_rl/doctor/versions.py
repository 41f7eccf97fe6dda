"""Python, the packages, CANN, NNAL and the driver against the lock."""

import re
from collections.abc import Iterator
from pathlib import Path

from qwen3_rl.doctor.findings import Case, Finding, fault, note, ok, warning
from qwen3_rl.doctor.machine import Machine
from qwen3_rl.doctor.npu_smi import for_npu, has_npu, npu_smi

BUILD = "bash build_project.sh --target "
TOOLKITS = ("/usr/local/Ascend/cann", "/usr/local/Ascend/ascend-toolkit/latest")
NNAL = "/usr/local/Ascend/nnal/atb/latest/version.info"
ARCHITECTURES = ("aarch64-linux", "x86_64-linux")
INSTALL_INFO = "ascend_toolkit_install.info"


def check_python(case: Case) -> Iterator[Finding]:
    found, expected = case.machine.python(), case.platform.python
    if found.startswith(f"{expected}."):
        yield ok("Python", found, expected)
    else:
        yield fault("Python", found, expected, f"build the environment with Python {expected}: PYTHON=python{expected}")


def check_packages(case: Case) -> Iterator[Finding]:
    """The packages that a mixed stack is betrayed by. On the CPU target torch is another one by design."""
    target = "npu" if for_npu(case.machine) else "cpu"
    pins = {name: getattr(case.platform, name) for name in ("torch", "torch_npu", "transformers", "ray")}
    if target == "cpu":
        pins["torch"] = cpu_pin("torch")
        del pins["torch_npu"]
        yield note("torch_npu", "not installed", "not needed without NPUs")
    for name, expected in pins.items():
        found = case.machine.package(name)
        if found is not None and found.partition("+")[0] == expected:
            yield ok(name, found, expected)
        else:
            yield fault(name, found or "not installed", expected, _why(name, found) + BUILD + target)
    numpy = case.machine.package("numpy")
    if target == "npu" and numpy and int(numpy.split(".")[0]) >= 2:
        yield fault("numpy", numpy, "below 2", "CANN's operator compiler and verl need numpy 1: " + BUILD + target)


def _why(name: str, found: str | None) -> str:
    if name == "torch_npu" and found == "2.8.0":
        return "its torchair lacks _aclnn_static_shape_kernel_sym_value_range, which graph mode calls: "
    if name == "torch_npu" and found:
        return "torch_npu works with exactly one torch and one CANN: "
    return ""


def cpu_pin(name: str) -> str:
    """The version that requirements-cpu.txt pins, or `unknown` where it cannot be read."""
    file = Path(__file__).parents[3] / "requirements-cpu.txt"
    text = file.read_text() if file.is_file() else ""
    pinned = re.search(rf"^{name}==(\S+)", text, re.MULTILINE)
    return pinned[1] if pinned else "unknown"


def toolkit(machine: Machine) -> tuple[str, str] | None:
    """CANN's version and the file that says it; the toolkit that set_env.sh named, else one at a usual place."""
    named = machine.env.get("ASCEND_TOOLKIT_HOME") or machine.env.get("ASCEND_HOME_PATH")
    for home in [named] if named else [*TOOLKITS, *(t.replace("/usr/local", machine.home) for t in TOOLKITS)]:
        for file in (f"{home}/{architecture}/{INSTALL_INFO}" for architecture in ARCHITECTURES):
            if found := re.search(r"^version=(\S+)", machine.read(file) or "", re.MULTILINE):
                return found[1], file
    return None


def check_cann(case: Case) -> Iterator[Finding]:
    if not for_npu(case.machine):
        yield note("CANN", "no NPU here")
        return
    expected = case.platform.cann
    found = toolkit(case.machine)
    if found is None:
        yield fault("CANN", "not found", expected, f"use the image {case.platform.image}, or install CANN {expected}")
        return
    version, file = found
    sourced = case.machine.env.get("ASCEND_TOOLKIT_HOME") or case.machine.env.get("ASCEND_HOME_PATH")
    if version != expected:
        yield fault(
            "CANN", f"{version} ({file})", expected, f"install CANN {expected}, or use the image {case.platform.image}"
        )
    else:
        yield ok("CANN", version, expected)
    if not sourced:
        yield fault(
            "CANN environment",
            "ASCEND_HOME_PATH is not set",
            "set_env.sh sourced",
            f"source {Path(file).parents[1]}/set_env.sh (or torch_npu finds no libhccl.so); put it into the env script",
        )
    yield from _check_nnal(case, version)


def _check_nnal(case: Case, cann: str) -> Iterator[Finding]:
    text = case.machine.read(NNAL) or case.machine.read(
        f"{case.machine.env.get('ATB_HOME_PATH', '')}/../../version.info"
    )
    found = re.search(r"Ascend-cann-atb\s*:\s*(\S+)", text or "")
    if not found:
        yield fault("NNAL", "not found", cann, "without it torch_npu finds no libatb.so: install Ascend-cann-nnal")
    elif found[1] != cann:
        yield fault(
            "NNAL",
            found[1],
            cann,
            "its libraries fit its own CANN only (undefined symbol in libtbe_adapter.so): "
            f"install NNAL {case.platform.cann}",
        )
    elif "ATB_HOME_PATH" not in case.machine.env:
        yield fault("NNAL", "ATB_HOME_PATH is not set", cann, "source /usr/local/Ascend/nnal/atb/set_env.sh")
    else:
        yield ok("NNAL", found[1], cann)


def check_driver(case: Case) -> Iterator[Finding]:
    """The driver (HDK): from its version file, which containers often lack, else from npu-smi."""
    if not for_npu(case.machine):
        yield note("driver (HDK)", "no NPU here")
        return
    expected = case.platform.hdk
    text = case.machine.read("/usr/local/Ascend/driver/version.info") or ""
    said = re.search(r"^(?:package_version|Version)=(\S+)", text, re.MULTILINE)
    smi = npu_smi(case.machine)
    found = said[1] if said else smi.version if smi else ""
    if not found:
        if has_npu(case.machine):
            how = "mount /usr/local/Ascend/driver/version.info into the container"
            yield warning("driver (HDK)", "unknown", f"{expected}.x", how)
        return
    if _release(found) == _release(expected):
        yield ok("driver (HDK)", found, f"{expected}.x")
    elif _release(found) > _release(expected):
        yield note("driver (HDK)", found, f"{expected}.x", "newer than the one this stack is meant for")
    else:
        yield fault(
            "driver (HDK)",
            found,
            f"{expected}.x",
            f"too old for CANN {case.platform.cann}: install Ascend HDK {expected}.x (driver, firmware) on the host",
        )


def _release(version: str) -> tuple[int, ...]:
    """25.3 of 25.3.rc1.2."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
