"""One GRPO step of the veRL on PYTHONPATH, on a CPU: `python first_step.py MODEL_FOLDER OUT.json [OVERRIDE...]`.

The training loop, advantages, old log-probabilities and the actor's update are veRL's own, in this process and without
Ray. Given are the responses and rewards, which depend on the seed alone. What a pristine tree lacks on a CPU is put
beside it here: memory calls of torch.cpu, and a process group of gloo.
"""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
    if not hasattr(torch.cpu, name):
        setattr(torch.cpu, name, lambda *_: 0)
for name in ("empty_cache", "ipc_collect"):
    if not hasattr(torch.cpu, name):
        setattr(torch.cpu, name, lambda: None)

import verl  # noqa: E402
from hydra import compose, initialize_config_dir  # noqa: E402
from tensordict import TensorDict  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.experimental.reward_loop import migrate_legacy_reward_impl  # noqa: E402
from verl.trainer.ppo.ray_trainer import RayPPOTrainer  # noqa: E402
from verl.workers.fsdp_workers import ActorRolloutRefWorker  # noqa: E402

SEED = 1
PROMPTS, GROUP, PROMPT_LENGTH, RESPONSE_LENGTH = 4, 4, 6, 5
OVERRIDES = [
    "algorithm.adv_estimator=grpo",
    f"data.train_batch_size={PROMPTS}",
    "actor_rollout_ref.model.use_remove_padding=False",
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.actor.fsdp_config.model_dtype=fp32",
    "actor_rollout_ref.actor.fsdp_config.dtype=float32",
    "actor_rollout_ref.actor.use_torch_compile=False",
    "actor_rollout_ref.actor.optim.lr=1e-2",
    # Two updates: at the second one the policy is no longer that of the old log-probabilities.
    f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS // 2}",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
    f"actor_rollout_ref.rollout.n={GROUP}",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4",
    "trainer.device=cpu",
    "trainer.n_gpus_per_node=1",
    "trainer.logger=[file]",
    "trainer.total_epochs=1",
    "trainer.total_training_steps=1",
    "trainer.val_before_train=False",
    "trainer.resume_mode=disable",
    "trainer.balance_batch=False",
]


def generated(requests: DataProto, vocabulary: int, seed: int) -> DataProto:
    """Random responses and rewards for ``requests``, as the agent loop gives them."""
    random = torch.Generator().manual_seed(seed)
    rows = len(requests)
    prompts = requests.batch["prompts_given"]
    responses = torch.randint(0, vocabulary, (rows, RESPONSE_LENGTH), generator=random)
    lengths = torch.randint(1, RESPONSE_LENGTH + 1, (rows, 1), generator=random)
    mask = (torch.arange(RESPONSE_LENGTH)[None] < lengths).long()
    attention = torch.cat([torch.ones_like(prompts), mask], 1)
    rewards = torch.zeros(rows, RESPONSE_LENGTH)
    rewards.scatter_(1, lengths - 1, torch.rand(rows, 1, generator=random))
    tensors = {
        "prompts": prompts,
        "responses": responses,
        "response_mask": mask,
        "input_ids": torch.cat([prompts, responses], 1),
        "attention_mask": attention,
        "position_ids": (attention.cumsum(1) - 1).clamp(min=0),
        "rm_scores": rewards,
    }
    empty = np.array([{} for _ in range(rows)], dtype=object)
    return DataProto(
        TensorDict(tensors, batch_size=rows),
        {"multi_modal_inputs": empty},
        meta_info={"timing": {}, "reward_extra_keys": []},
    )


class Loader(list):
    sampler = None


def main(model: str, out: str, *overrides: str) -> None:
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("cpu:gloo", store=store, rank=0, world_size=1)
    log = Path(out).with_suffix(".jsonl")
    os.environ["VERL_FILE_LOGGER_PATH"] = str(log)
    with initialize_config_dir(str(Path(verl.__file__).parent / "trainer" / "config"), version_base=None):
        config = compose("ppo_trainer", [*OVERRIDES, *overrides, f"actor_rollout_ref.model.path='{model}'"])
    config = migrate_legacy_reward_impl(config)

    worker = ActorRolloutRefWorker(config.actor_rollout_ref, role="actor")
    worker.init_model()
    vocabulary = worker.actor_model_config.vocab_size
    random = torch.Generator().manual_seed(SEED)
    prompts = torch.randint(0, vocabulary, (PROMPTS, PROMPT_LENGTH), generator=random)

    trainer = object.__new__(RayPPOTrainer)
    trainer.config = config
    trainer.use_critic = trainer.use_rm = trainer.use_reference_policy = trainer.use_prefix_grouper = False
    trainer.use_legacy_worker_impl = "auto"
    trainer.total_training_steps = 1
    trainer.train_dataset = []
    rows = np.array([{"index": row} for row in range(PROMPTS)], dtype=object)
    trainer.train_dataloader = Loader([{"prompts_given": prompts, "extra_info": rows}])
    trainer.resource_pool_manager = SimpleNamespace(get_n_gpus=lambda: 1)
    trainer.checkpoint_manager = SimpleNamespace(update_weights=lambda *_: None, sleep_replicas=lambda: None)
    trainer.actor_rollout_wg = SimpleNamespace(
        compute_log_prob=worker.compute_log_prob, update_actor=worker.update_actor
    )
    trainer.async_rollout_manager = SimpleNamespace(
        generate_sequences=lambda requests: generated(with_prompts(requests, prompts), vocabulary, SEED + 1)
    )
    if config.actor_rollout_ref.actor.use_kl_loss:
        reference = ActorRolloutRefWorker(config.actor_rollout_ref, role="ref")
        reference.init_model()
        trainer.use_reference_policy, trainer.ref_in_actor = True, False
        trainer.ref_policy_wg = SimpleNamespace(compute_ref_log_prob=reference.compute_ref_log_prob)
    trainer.fit()
    data = json.loads(log.read_text().splitlines()[-1])["data"]
    Path(out).write_text(json.dumps({"tree": str(Path(verl.__file__).parents[1]), "metrics": data}))


def with_prompts(requests: DataProto, prompts: torch.Tensor) -> DataProto:
    order = torch.tensor([row["index"] for row in requests.non_tensor_batch["extra_info"]])
    return DataProto(TensorDict({"prompts_given": prompts[order]}, batch_size=len(order)), requests.non_tensor_batch)


if __name__ == "__main__":
    main(*sys.argv[1:])
