"""Failures that users have reported in public, each as a change to a healthy machine.

``symptom`` is what the report quotes, in a few words; ``check`` and ``words`` are what the doctor must say of it.
"""

import re
from dataclasses import dataclass

from doctor_lab import MACHINES, Change

from qwen3_rl.doctor.findings import Level

GITHUB = "https://github.com/"
SMI = (MACHINES / "healthy" / "commands" / "npu-smi-info").read_text()
TCP = (MACHINES / "healthy" / "proc" / "net" / "tcp").read_text()
ROLLOUT = "actor_rollout_ref.rollout."


@dataclass(frozen=True)
class Report:
    url: str
    symptom: str
    change: Change
    check: str
    level: Level
    words: tuple[str, ...]


def occupied(npu: int, chip: int, pid: int, name: str, megabytes: int) -> str:
    """The npu-smi tables with a process on one die."""
    row = f"| {f'{npu}       {chip}':<25} | {pid:<13} | {name:<24} | {megabytes:<23} |"
    return re.sub(rf"\| No running processes found in NPU {npu} +\|", row, SMI)


def listening(port: int, address: str = "00000000") -> str:
    """The kernel's table with somebody listening on a port."""
    return TCP + f"   1: {address}:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 9 1 0\n"


def no_devices() -> dict[str, str | None]:
    nodes = [*(f"davinci{i}" for i in range(16)), "davinci_manager", "devmm_svm", "hisi_hdc"]
    return {f"dev/{name}": None for name in nodes}


SMI_8005 = "DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)\ndcmi module initialize failed. ret is -8005\n"
SMI_8020 = (
    "DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)\n"
    "dcmi model initialized failed, because the device is used. ret is -8020\n"
)
RAYLET = {
    "proc/4711/cmdline": "/opt/venv/ray/core/src/ray/raylet/raylet\0--raylet_socket_name=x\0",
    "proc/4711/status": "Name:\traylet\nUid:\t0\t0\t0\t0\n",
    "proc/4711/stat": "4711 (raylet) S 1 4711 4711 0 -1 0 0 0 0 0 0 0 0 0 20 0 9 0 34213100 0 0",
}
FAULT, WARNING = Level.FAULT, Level.WARNING

REPORTS = [
    Report(
        GITHUB + "vllm-project/vllm-ascend/issues/3114",
        "ValueError: Current node has no NPU available (Ray's resources list none)",
        Change(
            files=no_devices() | {"commands/npu-smi-info": None, "usr/local/Ascend/driver/version.info": None},
        ),
        "NPUs",
        FAULT,
        ("Ray would offer no NPU", "--device", "/dev/davinci_manager"),
    ),
    Report(
        GITHUB + "ray-project/ray/issues/59063",
        "torch.npu.is_available() is False in a Ray job, ASCEND_RT_VISIBLE_DEVICES is empty",
        Change(env={"ASCEND_RT_VISIBLE_DEVICES": ""}),
        "ASCEND_RT_VISIBLE_DEVICES",
        FAULT,
        ("unset ASCEND_RT_VISIBLE_DEVICES", "torch.npu.is_available()"),
    ),
    Report(
        GITHUB + "verl-project/verl/issues/5954",
        "Total available GPUs 7.0 is less than total desired GPUs 8",
        Change(env={"NPUS_PER_NODE": "7"}, train_script="python -m verl.trainer.main_ppo trainer.n_gpus_per_node=8"),
        "settings",
        FAULT,
        ("trainer.n_gpus_per_node=8", "NPUS_PER_NODE=7"),
    ),
    Report(
        GITHUB + "vllm-project/vllm-ascend/issues/2698",
        "dcmi module initialize failed. ret is -8005 (npu-smi in a container)",
        Change(files={"commands/npu-smi-info": SMI_8005}),
        "npu-smi",
        FAULT,
        ("-8005", "another container", "docker ps"),
    ),
    Report(
        GITHUB + "Ascend/cann-container-image/issues/46",
        "dcmi model initialized failed, because the device is used. ret is -8020",
        Change(files={"commands/npu-smi-info": SMI_8020}),
        "npu-smi",
        FAULT,
        ("-8020", "another container"),
    ),
    Report(
        GITHUB + "verl-project/verl/pull/332",
        "EJ0001: Failed to initialize the HCCP process. Maybe the last training process is running",
        Change(files={"commands/npu-smi-info": occupied(3, 0, 1953783, "python3", 55124)}),
        "NPU processes",
        WARNING,
        ("python3 (1953783)", "EJ0001", "wait 10 s"),
    ),
    Report(
        GITHUB + "ray-project/ray/issues/8749",
        "a script run again: Address already in use, the former run's servers are still there",
        Change(files=RAYLET),
        "left-over processes",
        WARNING,
        ("raylet (4711, root, for 2:11:09)", "ray stop"),
    ),
    Report(
        GITHUB + "ray-project/ray/issues/13345",
        "the head does not start: another program listens on its port",
        Change(files={"proc/net/tcp": listening(29444)}),
        "Ray port",
        FAULT,
        ("29444 is taken", "ss -ltnp", "RAY_PORT"),
    ),
    Report(
        GITHUB + "vllm-project/vllm-ascend/issues/405",
        "EJ0003: Failed to bind the IP port ... have been bound already, port[60000]",
        Change(files={"proc/net/tcp": listening(60000)}),
        "HCCL ports",
        FAULT,
        ("60000 taken", "EJ0003", "HCCL_IF_BASE_PORT"),
    ),
    Report(
        GITHUB + "linagora/openrag/pull/471",
        "the Ray dashboard is published on all interfaces (CVE-2023-48022)",
        Change(files={"proc/net/tcp": listening(8265)}),
        "Ray dashboard",
        WARNING,
        ("0.0.0.0", "--dashboard-host=127.0.0.1"),
    ),
    Report(
        GITHUB + "vllm-project/vllm-ascend/issues/262",
        "ImportError: libhccl.so: cannot open shared object file (Failed to infer device type)",
        Change(env={"ASCEND_HOME_PATH": None, "ASCEND_TOOLKIT_HOME": None}),
        "CANN environment",
        FAULT,
        ("source /usr/local/Ascend/cann/set_env.sh", "libhccl.so"),
    ),
    Report(
        GITHUB + "vllm-project/vllm-ascend/issues/152",
        "ImportError: libatb.so: cannot open shared object file",
        Change(files={"usr/local/Ascend/nnal/atb/latest/version.info": None}, env={"ATB_HOME_PATH": None}),
        "NNAL",
        FAULT,
        ("libatb.so", "Ascend-cann-nnal"),
    ),
    Report(
        GITHUB + "Ascend/pytorch/issues/99",
        "libtbe_adapter.so: undefined symbol _ZN3Mki2DlC1E... (CANN 8.5.0, torch_npu 2.8.0.post2, another nnal)",
        Change(files={"usr/local/Ascend/nnal/atb/latest/version.info": "    Ascend-cann-atb : 8.3.RC1\n"}),
        "NNAL",
        FAULT,
        ("8.3.RC1", "undefined symbol", "install NNAL 8.5.0"),
    ),
    Report(
        GITHUB + "vllm-project/vllm-ascend/issues/5468",
        "HCCL watchdog time-out with driver 24.1 below a newer CANN",
        Change(files={"usr/local/Ascend/driver/version.info": "Version=24.1.0\npackage_version=24.1.0\n"}),
        "driver (HDK)",
        FAULT,
        ("24.1.0", "too old for CANN 8.5.0"),
    ),
    Report(
        GITHUB + "vllm-project/vllm-ascend/issues/340",
        "module 'torch_npu' has no attribute '_npu_flash_attention' (an unpaired torch_npu)",
        Change(packages={"torch_npu": "2.5.1rc1"}),
        "torch_npu",
        FAULT,
        ("2.5.1rc1", "2.8.0.post2", "exactly one torch"),
    ),
    Report(
        GITHUB + "vllm-project/vllm-ascend/issues/5710",
        "vllm pulls a newer torch than vllm-ascend's torch_npu takes",
        Change(packages={"torch": "2.9.0"}),
        "torch",
        FAULT,
        ("2.9.0", "2.8.0", "build_project.sh --target npu"),
    ),
    Report(
        GITHUB + "vllm-project/vllm-ascend/issues/2210",
        "AclSetCompileopt ... error code is 500001 with numpy 2.0.2",
        Change(packages={"numpy": "2.0.2"}),
        "numpy",
        FAULT,
        ("2.0.2", "below 2"),
    ),
    Report(
        GITHUB + "ray-project/ray/issues/44063",
        "RuntimeError: Version mismatch: The cluster was started with another Ray or Python",
        Change(packages={"ray": "2.47.1", "python": "3.10.13"}),
        "ray",
        FAULT,
        ("2.47.1", "2.49.2"),
    ),
    Report(
        GITHUB + "modelscope/ms-swift/issues/6636",
        "sleep does not release memory; vllm-ascend's sleep mode with virtual memory",
        Change(env={"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}),
        "settings",
        FAULT,
        ("expandable_segments:True with sleep mode", "unset PYTORCH_NPU_ALLOC_CONF"),
    ),
    Report(
        GITHUB + "ray-project/ray/issues/37461",
        "Gloo: connection refused between two nodes; the host name is 127.0.1.1 in /etc/hosts",
        Change(
            files={"etc/hosts": "127.0.0.1 localhost\n127.0.1.1 a3-node-0\n"},
            env={"GLOO_SOCKET_IFNAME": None, "NNODES": "2"},
        ),
        "host name",
        FAULT,
        ("a3-node-0 is 127.0.1.1", "GLOO_SOCKET_IFNAME"),
    ),
    Report(
        GITHUB + "ray-project/ray/issues/34094",
        "several interfaces: a node cannot connect to the head, it takes the wrong one",
        Change(env={"GLOO_SOCKET_IFNAME": "docker0", "HCCL_SOCKET_IFNAME": None}, master="10.20.0.10"),
        "route to the head",
        FAULT,
        ("10.20.0.10 through eth0 (10.20.0.11)", "docker0", "SOCKET_IFNAME=eth0"),
    ),
    Report(
        GITHUB + "ray-project/ray/issues/26477",
        "Unable to connect to GCS at ADDRESS: the node never joins",
        Change(master="10.99.0.10"),
        "route to the head",
        FAULT,
        ("none to 10.99.0.10", "MASTER_ADDR"),
    ),
    Report(
        GITHUB + "NVIDIA-NeMo/RL/issues/988",
        "raylet: Too many open files with ulimit 1024",
        Change(
            files={"proc/self/limits": "Max open files            1024                 4096                 files\n"}
        ),
        "open files",
        WARNING,
        ("1024, at most 4096", "Too many open files", "nofile=65536"),
    ),
    Report(
        GITHUB + "alumae/kiirkirjutaja/issues/5",
        "ValueError: The configured object store size exceeds /dev/shm size",
        Change(
            files={
                "commands/df-kP-dev-shm": "Filesystem 1024-blocks Used Available Capacity Mounted on\n"
                "shm 65536 0 65536 0% /dev/shm\n"
            },
            env={"RAY_OBJECT_STORE_BYTES": "11811143680"},
        ),
        "shared memory",
        FAULT,
        ("0.1 of 0.1 GB free", "11.8 GB", "--shm-size"),
    ),
    Report(
        GITHUB + "gpustack/gpustack/issues/5660",
        "ld.so: object '/usr/lib/aarch64-linux-gnu/libjemalloc.so' from LD_PRELOAD cannot be preloaded",
        Change(env={"LD_PRELOAD": "/usr/lib/aarch64-linux-gnu/libjemalloc.so"}),
        "jemalloc",
        WARNING,
        ("/usr/lib/aarch64-linux-gnu/libjemalloc.so", "it is /usr/lib64/libjemalloc.so.2"),
    ),
]
