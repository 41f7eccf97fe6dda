"""One behaviour a patch: each test fails on the tree without its patch (test_patches_are_needed.py runs that)."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from qwen3_rl.cli import main

torch = pytest.importorskip("torch", reason="needs build_project.sh --target cpu")


def test_cpu_namespace_has_the_memory_calls():
    from verl.utils.device import get_torch_device

    device = get_torch_device()
    assert device is torch.cpu
    device.empty_cache()
    device.ipc_collect()
    assert device.memory_allocated() == device.max_memory_allocated(0) == 0
    assert device.memory_reserved() == device.max_memory_reserved() == 0


def test_process_group_on_a_cpu(tmp_path, monkeypatch):
    from verl.utils import distributed

    monkeypatch.setenv("DIST_INIT_METHOD", f"file://{tmp_path}/rendezvous")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    distributed.initialize_global_process_group_ray()
    try:
        tensor = torch.tensor([3.0])
        torch.distributed.all_reduce(tensor)
        assert tensor.item() == 3.0
    finally:
        distributed.destroy_global_process_group()


def trainer_handle(monkeypatch, npu_id: str) -> str:
    """The socket that the trainer's side binds, in a Ray worker that was given the NPU ``npu_id``."""
    from verl.workers.rollout.vllm_rollout import vllm_rollout

    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("RAY_LOCAL_WORLD_SIZE", "1")
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", npu_id)
    config = SimpleNamespace(
        tensor_model_parallel_size=1,
        data_parallel_size=1,
        pipeline_model_parallel_size=1,
        layered_summon=False,
        expert_parallel_size=1,
    )
    monkeypatch.setattr(vllm_rollout.BaseRollout, "__init__", lambda self, config, *_: setattr(self, "config", config))
    return vllm_rollout.ServerAdapter(config, None, None).zmq_handle


def rollout_handle(monkeypatch, npu_ids: str, local_rank: int) -> str:
    """The socket that vLLM's worker ``local_rank`` connects to, in a server that was given ``npu_ids``."""
    from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", npu_ids)
    worker = SimpleNamespace(device=torch.device("cpu"), local_rank=local_rank)
    return vLLMColocateWorkerExtension._get_zmq_handle(worker)


def test_weight_socket_lies_in_the_temporary_folder(tmp_path, monkeypatch):
    from verl.workers.rollout.vllm_rollout import utils, vllm_rollout

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for module in (utils, vllm_rollout):  # the device's name is another patch's matter
        monkeypatch.setattr(module, "get_device_uuid", lambda _: "DEVICE")
    expected = f"ipc://{tmp_path}/rl-colocate-zmq-DEVICE.sock"
    assert trainer_handle(monkeypatch, "0") == expected
    assert rollout_handle(monkeypatch, "0", 0) == expected


def test_trainer_and_rollout_name_the_same_device(monkeypatch):
    assert trainer_handle(monkeypatch, "3") == rollout_handle(monkeypatch, "2,3", 1)
    assert trainer_handle(monkeypatch, "2") == rollout_handle(monkeypatch, "2,3", 0)
    assert trainer_handle(monkeypatch, "2") != trainer_handle(monkeypatch, "3")


SEND_TO_NOBODY = """
import asyncio, torch, zmq
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender
sender = BucketedWeightSender("ipc://{folder}/nobody.sock", bucket_size_mb=1, use_shm=True)
try:
    asyncio.run(sender.async_send_weights(iter([("w", torch.zeros(4))])))
except zmq.Again:
    print("gave up")
"""


def test_sender_gives_up_when_nobody_receives(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SEND_TO_NOBODY.format(folder=tmp_path)],
        env={**os.environ, "VERL_WEIGHT_TRANSFER_TIMEOUT_S": "1"},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.stdout.endswith("gave up\n"), done.stderr[-2000:]


def test_weights_arrive_bit_equal(tmp_path):
    from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver, BucketedWeightSender

    generator = torch.Generator().manual_seed(0)
    # Several buckets of 1 MB, and values that a detour over another dtype would not survive.
    weights = {f"layer.{i}": torch.randn(100 + i, 700, generator=generator) for i in range(8)}
    weights["nan"] = torch.tensor([float("nan"), -0.0, 1e-45, float("inf")])
    weights["half"] = torch.randn(64, generator=generator).bfloat16()
    handle = f"ipc://{tmp_path}/weights.sock"
    received = {}

    def take(bucket):
        time.sleep(0.05)  # loading takes longer than filling the next bucket
        received.update((name, tensor.clone()) for name, tensor in bucket)

    def receive():
        receiver = BucketedWeightReceiver(handle, torch.device("cpu"), use_shm=True)
        receiver.receive_weights(take)

    thread = threading.Thread(target=receive)
    thread.start()
    asyncio.run(BucketedWeightSender(handle, bucket_size_mb=1, use_shm=True).async_send_weights(weights.items()))
    thread.join(30)
    assert received.keys() == weights.keys()
    for name, tensor in weights.items():
        assert received[name].dtype == tensor.dtype
        assert torch.equal(received[name].view(torch.uint8), tensor.view(torch.uint8)), name


def test_rms_norm_of_a_view():
    import vllm._C  # noqa: F401 (registers the operator)
    from vllm import _custom_ops

    # q_norm's input in Qwen3: a view into the fused qkv output, whose rows lie further apart than they are long.
    generator = torch.Generator().manual_seed(0)
    tokens, heads, head_dim = 5, 4, 32
    qkv = torch.randn(tokens, (heads + 4) * head_dim, generator=generator)
    query = qkv[:, : heads * head_dim].view(tokens, heads, head_dim)
    weight = torch.randn(head_dim, generator=generator)
    assert not query.is_contiguous()
    out = torch.empty_like(query)
    _custom_ops.rms_norm(out, query, weight, 1e-6)
    expected = query * torch.rsqrt(query.square().mean(-1, keepdim=True) + 1e-6) * weight
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)


def test_a_reference_model_under_fsdp2(tmp_path):
    """It has the actor's weights: at a step's first update the KL divergence between the two is none."""
    step, out = Path(__file__).with_name("first_step.py"), tmp_path / "out.json"
    assert main(["tiny-model", "--to", str(tmp_path / "model")]) == 0
    overrides = [
        "actor_rollout_ref.actor.use_kl_loss=True",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4",
        "actor_rollout_ref.ref.fsdp_config.model_dtype=fp32",
        "actor_rollout_ref.ref.fsdp_config.dtype=float32",
    ]
    done = subprocess.run([sys.executable, step, tmp_path / "model", out, *overrides], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert abs(json.loads(out.read_text())["metrics"]["actor/kl_loss"]) < 1e-6
