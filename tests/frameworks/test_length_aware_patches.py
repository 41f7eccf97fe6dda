"""veRL's own training loop, dataset and loader with the length-aware sampler; only the workers are stand-ins."""

import asyncio
import copy
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs build_project.sh --target cpu")

ROWS, BATCH, SIBLINGS, RESPONSE_LENGTH = 8, 2, 3, 40
SAMPLER = [
    "data.sampler.class_path=pkg://verl.experimental.dataset.length_bucket_sampler",
    "data.sampler.class_name=LengthAwareEpochSampler",
    "+data.sampler.bucket_size=4",
]


def write_rows(folder: Path) -> Path:
    """Rows whose question is their number; their answer will have 3 * number + 1 tokens."""
    from qwen3_rl.data.cli import write_parquet

    rows = [
        {
            "data_source": "numbers",
            "prompt": [{"role": "user", "content": str(number)}],
            "reward_model": {"style": "rule", "ground_truth": str(number)},
        }
        for number in range(ROWS)
    ]
    write_parquet(rows, folder / "rows.parquet")
    return folder / "rows.parquet"


def configure(folder: Path, overrides: list[str]):
    import verl.trainer
    from hydra import compose, initialize_config_dir

    path = write_rows(folder)
    with initialize_config_dir(str(Path(verl.trainer.__path__[0], "config").resolve()), version_base=None):
        return compose(
            "ppo_trainer",
            [
                f"data.train_files={path}",
                f"data.val_files={path}",
                f"+data.cache_dir={folder}",
                f"data.train_batch_size={BATCH}",
                f"data.max_response_length={RESPONSE_LENGTH}",
                "data.dataloader_num_workers=0",
                "data.filter_overlong_prompts=False",
                "data.seed=1",
                "algorithm.adv_estimator=grpo",
                f"actor_rollout_ref.rollout.n={SIBLINGS}",
                "trainer.logger=[]",
                "trainer.balance_batch=False",
                "trainer.val_before_train=False",
                "trainer.test_freq=-1",
                "trainer.save_freq=1",
                "trainer.total_epochs=2",
                *overrides,
            ],
        )


def answer(prompts):
    """What the agent loops return for ``prompts``, as its reward loop leaves it: no row of what was sent comes back."""
    from verl import DataProto

    numbers = [int(info["ground_truth"]) for info in prompts.non_tensor_batch["reward_model"]]
    lengths = torch.tensor([3 * number + 1 for number in numbers])
    mask = (torch.arange(RESPONSE_LENGTH) < lengths[:, None]).long()
    size = len(numbers)
    rewards = torch.zeros(size, RESPONSE_LENGTH)
    return DataProto.from_single_dict(
        {
            "prompts": torch.ones(size, 4, dtype=torch.long),
            "responses": mask,
            "response_mask": mask,
            "input_ids": torch.ones(size, 4 + RESPONSE_LENGTH, dtype=torch.long),
            "attention_mask": torch.cat([torch.ones(size, 4, dtype=torch.long), mask], dim=1),
            "rm_scores": rewards,
            "__num_turns__": np.full(size, 2, dtype=np.int32),
            "multi_modal_inputs": np.array([{}] * size, dtype=object),
        },
        meta_info={"timing": {}, "reward_extra_keys": []},
    )


class Recorder:
    """Stands in for the rollout, the actor and the file system, and keeps what the loop gave to each."""

    def __init__(self):
        self.asked, self.saved, self.logged = [], [], []


def train(folder: Path, overrides: list[str], monkeypatch) -> Recorder:
    """Run RayPPOTrainer.fit() on the rows."""
    from verl import DataProto
    from verl.trainer.main_ppo import create_rl_dataset, create_rl_sampler
    from verl.trainer.ppo import ray_trainer
    from verl.utils import tracking

    from qwen3_rl.data.tiny_model import build_tokenizer

    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", folder)
    config = configure(folder, overrides)
    recorder = Recorder()
    trainer = object.__new__(ray_trainer.RayPPOTrainer)
    trainer.config, trainer.tokenizer, trainer.processor = config, build_tokenizer(), None
    dataset = create_rl_dataset(config.data.train_files, config.data, trainer.tokenizer, None)
    trainer._create_dataloader(dataset, dataset, None, create_rl_sampler(config.data, dataset))
    trainer.use_rm = trainer.use_critic = trainer.use_reference_policy = False
    trainer.reward_loop_manager = None
    trainer.checkpoint_manager = Mock()
    trainer.resource_pool_manager = Mock(get_n_gpus=lambda: 1)
    trainer.actor_rollout_wg = SimpleNamespace()
    trainer._load_checkpoint = lambda: 0

    def generate(prompts):
        recorder.asked.append(copy.copy(prompts.meta_info))
        return answer(prompts)

    def old_log_prob(batch):
        zeros = torch.zeros(len(batch), RESPONSE_LENGTH)
        return DataProto.from_single_dict({"old_log_probs": zeros, "entropys": zeros.clone()}), 0.0

    trainer.async_rollout_manager = SimpleNamespace(generate_sequences=generate)
    trainer._compute_old_log_prob = old_log_prob
    trainer._update_actor = lambda batch: DataProto(meta_info={"metrics": {}})
    trainer._save_checkpoint = lambda: recorder.saved.append(copy.deepcopy(trainer.train_dataloader.state_dict()))
    logger = SimpleNamespace(log=lambda data, step: recorder.logged.append(data))
    monkeypatch.setattr(tracking, "Tracking", lambda **_: logger)
    trainer.fit()
    recorder.sampler = trainer.train_dataloader.sampler
    return recorder


def test_row_ids_reach_the_sampler(tmp_path, monkeypatch):
    statistics = train(tmp_path, SAMPLER, monkeypatch).sampler.statistics
    assert statistics.updates.tolist() == [2] * ROWS
    np.testing.assert_allclose(statistics.longest(), [3 * number + 1 for number in range(ROWS)], rtol=1e-6)


def test_the_checkpoint_has_the_step_it_is_of(tmp_path, monkeypatch):
    saved = train(tmp_path, SAMPLER, monkeypatch).saved
    updates = [state["_sampler_iter_state"]["sampler_iter_state"]["statistics"]["updates"].sum() for state in saved]
    assert updates == [BATCH * step for step in range(1, 2 * ROWS // BATCH + 1)]


def test_bubble_ratio(tmp_path, monkeypatch):
    logged = train(tmp_path, ["data.shuffle=False"], monkeypatch).logged  # veRL's own sampler
    for step, metrics in enumerate(logged):
        longest, other = (3 * (2 * (step % 4) + i) + 1 for i in (1, 0))
        assert metrics["rollout/bubble_ratio"] == pytest.approx(1 - (longest + other) / 2 / longest)
    assert len(logged) == 8


def sampling_parameters(meta_info: dict) -> dict:
    """What AgentLoopWorker gives to an agent loop for a batch with this meta_info."""
    from verl import DataProto
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

    given = []

    async def run(sampling_params, trajectory, **kwargs):
        given.append(sampling_params)

    values = SimpleNamespace(top_p=1.0, top_k=-1, temperature=0.0)
    config = SimpleNamespace(
        temperature=1.0,
        top_p=1.0,
        top_k=-1,
        calculate_log_probs=False,
        val_kwargs=values,
        agent=SimpleNamespace(default_agent_loop="single_turn_agent"),
    )
    worker = SimpleNamespace(rollout_config=config, _run_agent_loop=run, _postprocess=lambda *_, **__: None)
    batch = DataProto.from_single_dict({"dummy": torch.zeros(1, 1)}, meta_info=meta_info)
    asyncio.run(AgentLoopWorker.generate_sequences(worker, batch))
    return given[0]


def test_the_cap_is_a_sampling_parameter_in_training_only(tmp_path, monkeypatch):
    off = train(tmp_path, SAMPLER, monkeypatch)
    assert not any("response_max_tokens" in asked for asked in off.asked)
    monkeypatch.setenv("VLLM_ROLLOUT_EARLY_STOP_ENABLE", "1")
    monkeypatch.setenv("VLLM_ROLLOUT_EARLY_STOP_FACTOR", "1.5")
    monkeypatch.setenv("VLLM_ROLLOUT_EARLY_STOP_MIN_TOKENS", "12")
    on = train(tmp_path, [*SAMPLER, "+data.sampler.shuffle_batch_blocks=False"], monkeypatch)
    caps = [asked["response_max_tokens"] for asked in on.asked]
    assert caps == [metrics["rollout/response_max_tokens_cap"] for metrics in on.logged]
    # Nothing is known in epoch 1; in epoch 2 batches come longest first, with up to 22, 16, 10 and 4 tokens.
    assert caps == [RESPONSE_LENGTH] * 4 + [33, 24, 15, 12]
    assert [metrics["rollout/capped_ratio"] for metrics in on.logged] == [0] * 8

    assert sampling_parameters({"response_max_tokens": 9})["max_tokens"] == 9
    assert "max_tokens" not in sampling_parameters({"response_max_tokens": 9, "validate": True})
    assert "max_tokens" not in sampling_parameters({})
