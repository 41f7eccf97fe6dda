"""`DapoTrainer`: veRL's PPO trainer, which generates until a batch is full of groups that teach something."""

import uuid
from dataclasses import dataclass

import numpy as np
from verl import DataProto
from verl.trainer.ppo.ray_trainer import RayPPOTrainer

from qwen3_rl.dapo.batches import Batches
from qwen3_rl.dapo.groups import kept_groups, rows_of
from qwen3_rl.errors import UserError
from qwen3_rl.sam.metrics import over_batches


@dataclass
class Counts:
    """Of one step, in groups. used + surplus + filtered = generated."""

    batches: int = 0
    generated: int = 0
    filtered: int = 0
    surplus: int = 0

    def metrics(self) -> dict[str, list[float]]:
        """As veRL's actor reports its metrics: lists to take the mean of."""
        return {
            "train/num_gen_batches": [float(self.batches)],
            "train/groups_generated": [float(self.generated)],
            "train/groups_filtered": [float(self.filtered)],
            "train/groups_surplus": [float(self.surplus)],
        }


class DapoTrainer(RayPPOTrainer):
    """veRL's training loop with one thing changed: what `generate_sequences` gives it.

    The loop makes a batch of prompts, hands it to `_get_gen_batch`, generates, and unites both. Here the generation
    goes on with further prompts until data.train_batch_size groups are kept, and the loop's batch is filled with their
    prompts. It wraps the rollout manager as veRL's own RolloutSkip does. Validation is left alone.
    """

    def _create_dataloader(self, *args, **kwargs) -> None:
        super()._create_dataloader(*args, **kwargs)
        self.train_dataloader = Batches(self.train_dataloader)

    def init_workers(self) -> None:
        super().init_workers()
        if (self.config.algorithm.get("filter_groups") or {}).get("enable", False):
            self._generate = self.async_rollout_manager.generate_sequences
            self.async_rollout_manager.generate_sequences = self._generate_full_batch

    def _get_gen_batch(self, batch: DataProto) -> DataProto:
        self._prompts = batch
        return super()._get_gen_batch(batch)

    def _update_actor(self, batch: DataProto) -> DataProto:
        output = super()._update_actor(batch)
        if counts := getattr(self, "_counts", None):
            output.meta_info["metrics"].update(counts.metrics())
        return output

    def _generate_full_batch(self, requests: DataProto) -> DataProto:
        """Responses of exactly data.train_batch_size groups, those with different values of the metric.

        ``requests``: the prompts of one generation batch, each repeated rollout.n times. Raises UserError after
        max_num_gen_batches batches, or if the rewards lack the metric.
        """
        if requests.meta_info.get("validate", False):
            return self._generate(requests)
        wanted = self.config.data.train_batch_size
        group_size = self.config.actor_rollout_ref.rollout.n
        loop_batch = self._prompts
        counts = Counts()
        kept_prompts, kept_responses, timing, rollout_metrics = [], [], {}, []
        while True:
            prompts = self._prompts
            responses = self._generate(requests)
            for name, value in responses.meta_info.pop("timing", {}).items():
                timing[name] = max(timing.get(name, value), value)
            rollout_metrics.append(responses.meta_info.pop("rollout_metrics", {}))
            groups = kept_groups(self._metric(responses), group_size)
            counts.batches += 1
            counts.generated += len(prompts)
            counts.filtered += len(prompts) - len(groups)
            kept_prompts.append(prompts.select_idxs(groups))
            kept_responses.append(responses.select_idxs(rows_of(groups, group_size)))
            if counts.generated - counts.filtered >= wanted:
                break
            self._check_limit(counts, wanted)
            requests = self._next_requests(group_size, requests.meta_info)
        counts.surplus = counts.generated - counts.filtered - wanted
        self._counts = counts
        full = DataProto.concat(kept_prompts)[:wanted]
        loop_batch.batch, loop_batch.non_tensor_batch = full.batch, full.non_tensor_batch
        self._prompts = None
        result = DataProto.concat(kept_responses)[: wanted * group_size]
        result.meta_info["timing"] = timing
        result.meta_info["rollout_metrics"] = over_batches(rollout_metrics)
        return result

    def _next_requests(self, group_size: int, meta_info: dict) -> DataProto:
        batch = DataProto.from_single_dict(self.train_dataloader.more())
        batch.non_tensor_batch["uid"] = np.array([str(uuid.uuid4()) for _ in range(len(batch))], dtype=object)
        requests = self._get_gen_batch(batch)
        requests.meta_info.update(meta_info)
        return requests.repeat(repeat_times=group_size, interleave=True)

    def _metric(self, responses: DataProto) -> np.ndarray:
        name = self.config.algorithm.filter_groups.metric
        if name in ("seq_reward", "seq_final_reward", "score") and name not in responses.non_tensor_batch:
            return responses.batch["rm_scores"].sum(-1).numpy()
        if name not in responses.non_tensor_batch:
            given = ", ".join(responses.meta_info.get("reward_extra_keys", [])) or "nothing"
            raise UserError(
                f"algorithm.filter_groups.metric = {name!r}, but the rewards give {given}",
                "take one of those or seq_reward, or return it from compute_score",
            )
        return responses.non_tensor_batch[name]

    def _check_limit(self, counts: Counts, wanted: int) -> None:
        most = self.config.algorithm.filter_groups.max_num_gen_batches
        if 0 < most <= counts.batches:
            raise UserError(
                f"{counts.generated - counts.filtered} of {wanted} groups after {counts.batches} generation batches; "
                "in the others all responses have the same value",
                "take data that is neither too hard nor too easy, or raise algorithm.filter_groups.max_num_gen_batches",
            )
