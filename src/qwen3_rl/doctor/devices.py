"""The NPUs: can they be reached, are they all there and healthy, and who sits on them?"""

from collections.abc import Iterator

from qwen3_rl.doctor.findings import Case, Finding, fault, note, ok, warning
from qwen3_rl.doctor.npu_smi import NpuSmi, for_npu, has_npu, npu_smi

NODES = ("davinci_manager", "devmm_svm", "hisi_hdc")
# The driver and its firmware hold about 3 GB of a die's memory; a job holds far more.
IDLE_MEGABYTES = 5000
HEALTHY = ("OK", "Warning")


def dies_expected(case: Case) -> int:
    """NPUS_PER_NODE, or what the launcher takes it for where it is not set: an Atlas A3's 16."""
    said = case.machine.env.get("NPUS_PER_NODE", "")
    return int(said) if said.isdigit() else 16


def check_devices(case: Case) -> Iterator[Finding]:
    machine = case.machine
    if not for_npu(machine):
        yield note("NPUs", "no NPU here", "", "the CPU target needs none")
        return
    if not has_npu(machine):
        yield fault(
            "NPUs",
            "none, but torch_npu is installed",
            f"{dies_expected(case)} dies",
            "Ray would offer no NPU. On a host: install the driver. In a container: start it with --device for "
            "/dev/davinci0 ..., /dev/davinci_manager, /dev/devmm_svm, /dev/hisi_hdc",
        )
        return
    yield from _check_device_files(case)
    smi = npu_smi(machine)
    if smi is None:
        yield warning(
            "npu-smi",
            "not found",
            "npu-smi info",
            "mount /usr/local/bin/npu-smi and /usr/local/dcmi into the container",
        )
    elif smi.failure or not smi.dies:
        yield fault("npu-smi", smi.failure or "lists no device", "npu-smi info", _npu_smi_fix(smi.failure))
    else:
        yield from _check_dies(case, smi)


def _npu_smi_fix(failure: str) -> str:
    if "-8005" in failure or "-8020" in failure:
        return (
            "another container holds the devices, or this one lacks device files or /usr/local/dcmi: "
            "stop the other one (`docker ps` on the host), then start this one anew"
        )
    return "does `npu-smi info` work on the host? If not: reload the driver, or reboot"


def _check_device_files(case: Case) -> Iterator[Finding]:
    found = len(case.machine.names("/dev", r"davinci\d+"))
    missing = [f"/dev/{name}" for name in NODES if not case.machine.names("/dev", name)]
    expected = dies_expected(case)
    if found < expected or missing:
        yield fault(
            "device files",
            f"{found} of /dev/davinci*" + (f"; no {', '.join(missing)}" if missing else ""),
            f"{expected} and {', '.join(NODES)}",
            f"start the container with them (--device), or set NPUS_PER_NODE={found or 1}: Ray and verl count on them",
        )
    visible = case.machine.env.get("ASCEND_RT_VISIBLE_DEVICES")
    if visible is not None:
        ids = [each for each in visible.split(",") if each.strip().isdigit()]
        if len(ids) < expected:
            yield fault(
                "ASCEND_RT_VISIBLE_DEVICES",
                repr(visible),
                f"{expected} ids",
                f"unset ASCEND_RT_VISIBLE_DEVICES, or set NPUS_PER_NODE={len(ids) or 1}: "
                "torch.npu.is_available() is False for what it hides",
            )


def _check_dies(case: Case, smi: NpuSmi) -> Iterator[Finding]:
    expected = dies_expected(case)
    cards = len({die.npu for die in smi.dies})
    found = f"{len(smi.dies)} dies on {cards} cards ({smi.dies[0].name})"
    if len(smi.dies) < expected:
        yield fault(
            "NPUs",
            found,
            f"{expected} dies",
            f"a card has dropped out (`dmesg`, BMC; reboot the host), or set NPUS_PER_NODE={len(smi.dies)}",
        )
    else:
        yield ok("NPUs", found, f"{expected} dies")
    ill = [die for die in smi.dies if die.health != "OK"]
    if ill:
        level = warning if all(die.health in HEALTHY for die in ill) else fault
        names = ", ".join(f"NPU {die.npu} chip {die.chip}: {die.health}" for die in ill)
        yield level("NPU health", names, "OK", f"npu-smi info -t health -i {ill[0].npu} names the fault")
    else:
        yield ok("NPU health", "all OK", "OK")
    yield from _check_occupied(smi)


def _check_occupied(smi: NpuSmi) -> Iterator[Finding]:
    if smi.processes:
        names = ", ".join(sorted({f"{each.name} ({each.pid})" for each in smi.processes}))
        yield warning(
            "NPU processes",
            names,
            "none before a run",
            "HCCL init fails (EJ0001: last training process is running) until they are gone: end them if they are "
            "yours (host pids), wait 10 s, run doctor again",
        )
    elif busy := [die for die in smi.dies if die.used > IDLE_MEGABYTES]:
        names = ", ".join(f"NPU {die.npu} chip {die.chip}: {die.used} MB" for die in busy)
        yield warning(
            "NPU memory",
            names,
            f"below {IDLE_MEGABYTES} MB when idle",
            "held by a process that is not shown here, in another container perhaps: `npu-smi info` on the host",
        )
    else:
        yield ok("NPU processes", "none", "none before a run")
