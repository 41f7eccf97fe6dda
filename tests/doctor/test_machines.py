"""The doctor on recorded machines: the right findings in each, and no others."""

import json

import pytest
from doctor_lab import NAMES, bad, doctor, findings, machine

from qwen3_rl.doctor.findings import Level

# check: level, and words of the row
EXPECTED = {
    "healthy": {},
    "driver-too-old": {"driver (HDK)": (Level.FAULT, "24.1.rc2.2", "25.3.x", "install Ascend HDK 25.3.x")},
    "torch-npu-without-post2": {"torch_npu": (Level.FAULT, "2.8.0", "2.8.0.post2", "build_project.sh --target npu")},
    "missing-device": {
        "NPUs": (Level.FAULT, "14 dies on 7 cards", "16 dies", "NPUS_PER_NODE=14"),
        "device files": (Level.FAULT, "14 of /dev/davinci*", "16", "NPUS_PER_NODE=14"),
    },
    "full-shared-memory": {"shared memory": (Level.FAULT, "0.1 of 68.7 GB free", "1.0 GB", "--shm-size")},
    "other-cann": {
        "CANN": (Level.FAULT, "8.3.RC2", "8.5.0", "install CANN 8.5.0"),
    },
}


def test_every_recorded_machine_is_expected():
    assert set(EXPECTED) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_right_findings_and_no_others(name, tmp_path):
    found = bad(findings(machine(name, tmp_path / name)))
    assert set(found) == set(EXPECTED[name])
    for check, (level, *words) in EXPECTED[name].items():
        finding = found[check]
        assert finding.level is level
        row = f"{finding.found} | {finding.expected} | {finding.fix}"
        assert all(word in row for word in words), row


def test_the_command_on_a_recording(tmp_path):
    done = doctor("--recording", str(machine("driver-too-old", tmp_path)))
    assert done.returncode == 4
    assert "24.1.rc2.2" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert "driver:24.1.rc2.2" in last
    assert last.endswith("findings:driver-(HDK)")


def test_json_says_the_same(tmp_path):
    done = doctor("--json", "--recording", str(machine("full-shared-memory", tmp_path)))
    said = json.loads(done.stdout)
    assert done.returncode == 4
    assert said["worst"] == "fault"
    assert [row["check"] for row in said["findings"] if row["level"] == "fault"] == ["shared memory"]


def test_a_folder_that_is_no_recording(tmp_path):
    done = doctor("--recording", str(tmp_path))
    assert done.returncode == 2
    assert f"{tmp_path} is no recorded machine" in done.stderr
