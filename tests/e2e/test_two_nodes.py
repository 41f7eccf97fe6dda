"""The tiny CPU job over two hosts, which are namespaces of this machine: the real trainer, vLLM and Ray."""

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from tests.launch.hosts import hosts, usable

from qwen3_rl.cli import main

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(usable()), reason=usable() or "usable"),
    pytest.mark.skipif(
        not (ROOT / ".venv" / ".built-for").is_file(), reason="needs build_project.sh --target cpu in this checkout"
    ),
]


@pytest.fixture
def folder():
    """Not below /tmp, which every host has for itself."""
    with tempfile.TemporaryDirectory(prefix="qwen3-rl-hosts-", dir="/var/tmp") as name:
        yield Path(name)


def test_the_tiny_job_over_two_nodes(folder):
    assert main(["tiny-model", "--to", str(folder / "model")]) == 0
    assert main(["data", "arithmetic", "--to", str(folder / "data")]) == 0
    command = [
        "bash",
        str(ROOT / "ray_start_npu.sh"),
        str(ROOT / "internal/train_grpo_qwen3_tiny_cpu.sh"),
        str(ROOT / "internal/qwen3_tiny_cpu_env.sh"),
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=64",
        "actor_rollout_ref.rollout.agent.num_workers=2",
    ]
    settings = {
        "NNODES": "2",
        "MASTER_ADDR": "10.99.0.1",
        "OUTPUTS_DIR": str(folder / "outputs"),
        "RUN_NAME": "run",
        "TMPDIR": "/tmp",
        "STEPS": "1",
        "TRAIN_BATCH": "32",
        "MODEL_PATH": str(folder / "model"),
        "DATA_DIR": str(folder / "data"),
    }
    with hosts(2, folder) as (head, other):
        worker = other.enter(command, {**os.environ, **settings}, folder)
        launch = head.enter(command, {**os.environ, **settings}, folder)
        listening = set()
        while launch.returncode is None:
            try:
                said = launch.communicate(timeout=3)[0]
            except subprocess.TimeoutExpired:
                listening |= head.listening() | other.listening()
        assert launch.returncode == 0, said[-5000:]
        assert worker.communicate()[0].count("exit code 0") == 2
        assert worker.returncode == 0
        assert not head.processes()
        assert not other.processes()
    assert listening == {"127.0.0.1", head.address, other.address}
    (step,) = (json.loads(line) for line in (folder / "outputs/run/metrics.jsonl").read_text().splitlines())
    assert step["training/global_step"] == 1
    assert step["response_length/mean"] > 0
    assert "2 node(s) import the same trees" in said
    # Words of a worker on the other node.
    assert re.search(r"WorkerDict pid=\d+, ip=10\.99\.0\.2\)", said)
