"""A subclass of veRL's TaskRunner chooses the trainer."""

from pathlib import Path

from verl.experimental.reward_loop import migrate_legacy_reward_impl
from verl.trainer.main_ppo import TaskRunner

from qwen3_rl import cli
from qwen3_rl.dapo.main import DapoTaskRunner
from qwen3_rl.dapo.trainer import DapoTrainer
from qwen3_rl.data import arithmetic
from qwen3_rl.data.cli import write_parquet
from qwen3_rl.dry_run.command import Command
from qwen3_rl.dry_run.keys import compose_config

FRAMEWORKS = Path(__file__).parents[2] / "frameworks"


class Recorder:
    """In place of a trainer: what it was made with."""

    made: dict | None = None

    def __init__(self, **arguments):
        Recorder.made = arguments

    def init_workers(self):
        pass

    def fit(self):
        pass


def test_the_task_runner_makes_the_class_of_a_subclass(tmp_path):
    assert cli.main(["tiny-model", "--to", str(tmp_path / "model")]) == 0
    files = []
    for split in ("train", "test"):
        files.append(tmp_path / f"{split}.parquet")
        write_parquet(arithmetic.build_rows(8, 1, split), files[-1])
    overrides = (
        f"actor_rollout_ref.model.path={tmp_path / 'model'}",
        f"data.train_files={files[0]}",
        f"data.val_files={files[1]}",
        "data.filter_overlong_prompts_workers=1",
        "data.train_batch_size=8",
        "actor_rollout_ref.rollout.name=vllm",
        "actor_rollout_ref.actor.ppo_mini_batch_size=8",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1",
        "algorithm.adv_estimator=grpo",
    )
    config, found = compose_config(Command("verl.trainer.main_ppo", "ppo_trainer", overrides), FRAMEWORKS)
    assert not found

    class Runner(TaskRunner):
        trainer_class = Recorder

    Runner().run(migrate_legacy_reward_impl(config))
    assert Recorder.made is not None
    assert len(Recorder.made["train_dataset"]) == 8


def test_ours_is_the_one_with_dynamic_sampling():
    assert DapoTaskRunner.trainer_class is DapoTrainer
    assert TaskRunner.trainer_class is not DapoTrainer
