"""`python3 -m qwen3_rl.dapo.main OVERRIDE...`: verl.trainer.main_ppo with dynamic sampling."""

import hydra
import ray
from verl.experimental.reward_loop import migrate_legacy_reward_impl
from verl.trainer.main_ppo import TaskRunner, run_ppo
from verl.utils.device import auto_set_device

from qwen3_rl.dapo.trainer import DapoTrainer


class DapoTaskRunner(TaskRunner):
    trainer_class = DapoTrainer


@hydra.main(config_path="pkg://verl.trainer.config", config_name="ppo_trainer", version_base=None)
def main(config) -> None:
    auto_set_device(config)
    run_ppo(migrate_legacy_reward_impl(config), task_runner_class=ray.remote(num_cpus=1)(DapoTaskRunner))


if __name__ == "__main__":
    main()
