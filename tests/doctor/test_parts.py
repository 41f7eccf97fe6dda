"""The doctor's readers: npu-smi's tables, addresses of the kernel, train scripts, clocks."""

import ipaddress

import pytest
from doctor_lab import MACHINES, PLATFORM, Change, bad, findings, machine

from patchset.project import Project
from qwen3_rl.doctor.clock import Answer, skew, skewed
from qwen3_rl.doctor.findings import Case
from qwen3_rl.doctor.machine import Recording, command_file
from qwen3_rl.doctor.network import _address, hccl_ports
from qwen3_rl.doctor.npu_smi import Die, NpuProcess, parse
from qwen3_rl.doctor.settings import check_settings, read_overrides
from qwen3_rl.doctor.versions import _release

ROLLOUT = "actor_rollout_ref.rollout."
VLLM = f"+{ROLLOUT}engine_kwargs.vllm."
# One die a card, one of them ill; and the process table with the column of npu-smi 26.
A2 = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.rc1                 Version: 24.1.rc1                                             |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | 97.6        52                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3525 / 65536         |
+===========================+===============+====================================================+
| 1     910B3               | Alarm         | 97.6        52                0    / 0             |
| 0                         | 0000:C2:00.0  | 0           0    / 0          27547/ 65536         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------------------------+
| NPU     Chip              | Process id    | Process name       | Process memory(MB)    | Process id in container |
+===========================+===============+======================================================================+
| No running processes found in NPU 0                                                                              |
| 1       0                 | 632268        | python3.1          | 24197                 | NA                      |
"""


def test_a2_tables():
    smi = parse(A2)
    assert smi.version == "24.1.rc1"
    assert smi.dies == [Die(0, 0, "910B3", "OK", 3525, 65536), Die(1, 0, "910B3", "Alarm", 27547, 65536)]
    assert smi.processes == [NpuProcess(1, 0, 632268, "python3.1", 24197)]


def test_a3_tables():
    smi = parse((MACHINES / "healthy" / "commands" / "npu-smi-info").read_text())
    assert [(die.npu, die.chip) for die in smi.dies] == [(npu, chip) for npu in range(8) for chip in (0, 1)]
    assert (smi.processes, smi.failure) == ([], "")


def test_an_ill_card_and_memory_without_an_owner(tmp_path):
    text = A2.replace("| 1       0                 | 632268", "| no")
    found = bad(findings(machine("healthy", tmp_path, Change(files={"commands/npu-smi-info": text}))))
    assert "NPU 1 chip 0: Alarm" in found["NPU health"].found
    assert "NPU 1 chip 0: 27547 MB" in found["NPU memory"].found


def test_npu_smi_that_does_not_answer(tmp_path):
    text = "npu-smi: no answer within 4 s"
    found = bad(findings(machine("healthy", tmp_path, Change(files={"commands/npu-smi-info": text}))))
    assert found["npu-smi"].found == text


@pytest.mark.parametrize("text", ["", "npu-smi", "| |\n||||\n| 0 |", "| 0 a | OK | b |\n| x | 0000:C1:00.0 | c |"])
def test_nonsense_is_no_die(text):
    assert parse(text.replace("| x |", "| 7 |")).dies in ([], [Die(0, 7, "a", "OK", 0, 0)])


@pytest.mark.parametrize(
    ("digits", "address"),
    [
        ("0100007F", "127.0.0.1"),
        ("0B00140A", "10.20.0.11"),
        ("00000000000000000000000001000000", "::1"),
        ("B80D0120000000000000000001000000", "2001:db8::1"),
    ],
)
def test_addresses_as_the_kernel_writes_them(digits, address):
    assert _address(digits) == str(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    ("env", "ports"),
    [
        ({}, [*range(60000, 60016)]),
        ({"HCCL_IF_BASE_PORT": "50000"}, [*range(50000, 50016)]),
        ({"HCCL_HOST_SOCKET_PORT_RANGE": "60000,60050-60052"}, [60000, 60050, 60051, 60052]),
        ({"HCCL_HOST_SOCKET_PORT_RANGE": "auto", "HCCL_IF_BASE_PORT": "50000"}, []),
    ],
)
def test_hccl_ports(env, ports):
    assert hccl_ports(env) == ports


@pytest.mark.parametrize("value", ["^docker0", "=eth0", "eth0,docker0x", "eth", "eth9"])
def test_forms_of_interface_names(value, tmp_path):
    change = Change(env={"HCCL_SOCKET_IFNAME": value})
    found = bad(findings(machine("healthy", tmp_path, change), change))
    assert ("HCCL_SOCKET_IFNAME" in found) is (value in ("eth0,docker0x", "eth9"))


def test_releases_of_drivers():
    assert (
        _release("24.1.rc3.7") < _release("25.3") == _release("25.3.rc1.2") < _release("25.5.0") < _release("26.0.rc2")
    )


def test_overrides_of_a_train_script():
    script = f"""
args=(
    {ROLLOUT}name=vllm
    # {ROLLOUT}name=sglang
    "{VLLM}speculative_config.method=ngram"
    data.train_batch_size="$BATCH"
    '+trainer.logger=[console,file]'
)
python3 -m verl.trainer.main_ppo {ROLLOUT}enforce_eager=False \\
    {ROLLOUT}enforce_eager=True \\
"""
    assert read_overrides(script) == {
        f"{ROLLOUT}name": "vllm",
        f"{VLLM}speculative_config.method".lstrip("+"): "ngram",
        "data.train_batch_size": None,
        "trainer.logger": "[console,file]",
        f"{ROLLOUT}enforce_eager": "True",
    }


@pytest.mark.parametrize(
    ("script", "env", "words"),
    [
        (f"{VLLM}additional_config.npugraph_ex_config.enable=True", {}, "0.14, which 0.13.0 silently ignores"),
        (f"{VLLM}additional_config.ascend_compilation_config.enable_npugraph_ex=True", {}, "0.18"),
        (f"{VLLM}additional_config.enable_npugraph_x=True", {}, "the nearest is enable_npugraph_ex"),
        (f"{VLLM}additional_config.enable_npugraph_ex=True {ROLLOUT}enforce_eager=True", {}, "refuses both"),
        (
            f"{VLLM}additional_config.enable_npugraph_ex=True {VLLM}compilation_config.cudagraph_mode=PIECEWISE",
            {},
            "FULL_DECODE_ONLY",
        ),
        ("", {"ASCEND_LAUNCH_BLOCKING": "1"}, "unset ASCEND_LAUNCH_BLOCKING"),
        (
            f"{VLLM}speculative_config.method=ngram {ROLLOUT}calculate_log_probs=True",
            {},
            "vLLM 0.13.0 drafts nothing",
        ),
    ],
)
def test_settings_that_clash(script, env, words, tmp_path):
    change = Change(env=env, train_script=script)
    found = bad(findings(machine("healthy", tmp_path, change), change))
    assert words in found["settings"].fix


@pytest.mark.parametrize(
    ("script", "env"),
    [
        (f"+{ROLLOUT}enable_sleep_mode=False", {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}),
        (f"{ROLLOUT}enforce_eager=True", {"ASCEND_LAUNCH_BLOCKING": "1"}),
        (
            f"{VLLM}additional_config.enable_npugraph_ex=True {VLLM}compilation_config.cudagraph_mode=FULL_DECODE_ONLY",
            {},
        ),
        (f"{VLLM}additional_config.enable_npugraph_ex=True {ROLLOUT}cudagraph_capture_sizes=[4,8]", {}),
        (f"{VLLM}speculative_config.method=ngram {ROLLOUT}calculate_log_probs=$LOG_PROBS", {}),
    ],
)
def test_settings_that_do_not_clash(script, env, tmp_path):
    change = Change(env=env, train_script=script)
    assert bad(findings(machine("healthy", tmp_path, change), change)) == {}


@pytest.mark.parametrize(("line", "warned"), [("or sampling_params.logprobs is not None", True), ("", False)])
def test_log_probs_clash_only_where_the_tree_says_so(line, warned, tmp_path):
    folder = tmp_path / "frameworks" / "vllm" / "vllm" / "v1" / "spec_decode"
    folder.mkdir(parents=True)
    (folder / "utils.py").write_text(line)
    overrides = read_overrides(f"{VLLM}speculative_config.method=sam {ROLLOUT}calculate_log_probs=True")
    case = Case(Recording(machine("healthy", tmp_path / "m")), PLATFORM, overrides)
    found = list(check_settings(case, Project(tmp_path, tmp_path / "frameworks")))
    assert ("drafts nothing" in found[0].fix) is warned


def test_weights_of_which_a_file_is_missing(tmp_path):
    index = '{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}'
    files = {"m/model.safetensors.index.json": index, "m/model-1.safetensors": ""}
    change = Change(files=files, env={"MODEL_PATH": "/m"})
    assert (
        "/m lacks model-2.safetensors" in bad(findings(machine("healthy", tmp_path, change), change))["weights"].found
    )


def test_what_nobody_has_seen_yet_costs_one_row(tmp_path):
    change = Change(files={"proc/sys/net/ipv4/ip_local_port_range": "all of them"})
    found = bad(findings(machine("healthy", tmp_path, change), change))
    assert list(found) == ["ports"]
    assert "ValueError" in found["ports"].found


def test_the_disk_must_hold_the_weights_again(tmp_path):
    index = '{"metadata": {"total_size": 9000000000000}, "weight_map": {"a": "a.safetensors"}}'
    files = {"m/model.safetensors.index.json": index, "m/a.safetensors": ""}
    change = Change(files=files, env={"MODEL_PATH": "/m"})
    found = bad(findings(machine("healthy", tmp_path, change), change))
    assert (found["disk"].found, found["disk"].expected) == ("6452 GB free in this folder", "9000 GB")
    assert list(found) == ["disk"]


def test_a_full_memory(tmp_path):
    change = Change(files={"proc/meminfo": "MemTotal: 1000000000 kB\nMemAvailable: 40000000 kB\n"})
    assert "Ray would kill workers" in bad(findings(machine("healthy", tmp_path, change), change))["memory"].fix


def test_a_containers_limit(tmp_path):
    files = {"max": "100000000000", "current": "99000000000", "stat": "anon 5\ninactive_file 1000000000\n"}
    change = Change(files={f"sys/fs/cgroup/memory.{name}": text for name, text in files.items()})
    assert bad(findings(machine("healthy", tmp_path, change), change))["memory"].found == "2 of 100 GB available"


@pytest.mark.parametrize(("said", "warned"), [("no\n", True), ("yes\n", False), ("Failed to connect to bus\n", False)])
def test_a_clock_that_nobody_sets(said, warned, tmp_path):
    command = "commands/timedatectl-show-property-NTPSynchronized-value"
    change = Change(files={command: said}, env={"NNODES": "2"})
    assert ("clock" in bad(findings(machine("healthy", tmp_path, change), change))) is warned


@pytest.mark.parametrize(("found", "level"), [("2.8.0.post20", 3), ("2.8.0.post2", 0), ("2.8.0.post2+cpu", 0)])
def test_a_version_is_the_whole_of_it(found, level, tmp_path):
    change = Change(packages={"torch_npu": found})
    rows = {row.check: row for row in findings(machine("healthy", tmp_path, change), change)}
    assert rows["torch_npu"].level == level


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (Answer(100, 100.4, 101), 0),
        (Answer(100, 130, 101), 29),
        (Answer(100, 70, 101), -30),
        (Answer(100, 101.5, 160), 0),  # a slow answer proves nothing
    ],
)
def test_what_an_answer_says_of_a_clock(answer, seconds):
    assert skew(answer) == seconds


def test_only_clocks_that_are_certainly_off_are_named():
    lines = skewed({"a": Answer(0, 1, 2), "b": Answer(0, 40, 2), "c": Answer(0, -90, 2), "d": Answer(0, 6, 2)})
    assert [line.split(" (")[0] for line in lines] == [
        "b: its clock is 38 s ahead of the head's",
        "c: its clock is 90 s behind the head's",
    ]


def test_names_of_recorded_commands():
    assert command_file(("df", "-kP", "/dev/shm")) == "df-kP-dev-shm"
