"""Dynamic sampling with real batches and a generator whose rewards are given: counts, order, what belongs together."""

import pickle

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl import DataProto

from qwen3_rl.dapo.batches import Batches
from qwen3_rl.dapo.trainer import DapoTrainer
from qwen3_rl.errors import UserError

GROUP = 2


def prompts_of(rows):
    return {"dummy": torch.tensor(rows)[:, None], "row": np.array(rows, object), "extra_info": np.array(rows, object)}


def trainer_of(teaches, batch=4, wanted=4, limit=0, rows=100):
    """A trainer whose group of row r teaches something if ``teaches(r)``; its loader gives rows 0, 1, ... in order."""
    trainer = object.__new__(DapoTrainer)
    trainer.config = OmegaConf.create(
        {
            "data": {"train_batch_size": wanted},
            "actor_rollout_ref": {"rollout": {"n": GROUP}},
            "algorithm": {"filter_groups": {"enable": True, "metric": "acc", "max_num_gen_batches": limit}},
        }
    )
    loader = [prompts_of(list(range(start, start + batch))) for start in range(0, rows, batch)]
    trainer.train_dataloader = Batches(loader)
    trainer.seen = []

    def generate(requests):
        rows = requests.non_tensor_batch["extra_info"].tolist()
        assert rows == sorted(rows)
        assert len(rows) == GROUP * batch
        assert requests.meta_info["global_steps"] == 7
        trainer.seen += rows[::GROUP]
        place = np.arange(len(rows)) % GROUP
        values = np.array([float(at) if teaches(row) else 1.0 for row, at in zip(rows, place, strict=True)])
        return DataProto(
            batch=TensorDict(
                {"responses": torch.tensor(rows)[:, None] * 10 + torch.tensor(place)[:, None]}, batch_size=len(rows)
            ),
            non_tensor_batch={"acc": values},
            meta_info={"timing": {"slowest": float(rows[0])}, "reward_extra_keys": ["acc"]},
        )

    trainer._generate = generate
    return trainer


def one_step(trainer):
    """What veRL's loop does around the generation: the united batch."""
    batch = DataProto.from_single_dict(next(trainer.train_dataloader))
    batch.meta_info["temperature"] = 1.0
    batch.non_tensor_batch["uid"] = np.array([f"u{row}" for row in batch.non_tensor_batch["row"]], dtype=object)
    requests = trainer._get_gen_batch(batch)
    requests.meta_info["global_steps"] = 7
    output = trainer._generate_full_batch(requests.repeat(GROUP, interleave=True))
    timing = output.meta_info.pop("timing")
    united = batch.repeat(GROUP, interleave=True).union(output)
    return united, timing


def start(trainer):
    iter(trainer.train_dataloader)
    return trainer


def test_every_response_stays_with_its_prompt():
    trainer = start(trainer_of(lambda row: row % 3 == 0))
    batch, _ = one_step(trainer)
    assert batch.non_tensor_batch["extra_info"].tolist() == [0, 0, 3, 3, 6, 6, 9, 9]
    assert batch.batch["responses"][:, 0].tolist() == [0, 1, 30, 31, 60, 61, 90, 91]
    uids = batch.non_tensor_batch["uid"].tolist()
    assert uids[:4] == ["u0", "u0", "u3", "u3"]
    assert uids[0::2] == uids[1::2]
    assert len(set(uids)) == 4
    assert batch.meta_info["temperature"] == 1.0


def test_counts():
    trainer = start(trainer_of(lambda row: row % 3 == 0))
    _, timing = one_step(trainer)
    counts = trainer._counts
    assert (counts.batches, counts.generated, counts.filtered, counts.surplus) == (3, 12, 8, 0)
    assert counts.metrics()["train/num_gen_batches"] == [3.0]
    assert timing == {"slowest": 8.0}
    assert trainer.seen == list(range(12))


def test_nothing_is_generated_twice_or_left_out_over_steps():
    trainer = start(trainer_of(lambda row: row % 2 == 0))
    rows = [row for _ in range(3) for row in one_step(trainer)[0].non_tensor_batch["extra_info"].tolist()]
    assert rows == [row for row in range(0, 24, 2) for _ in range(GROUP)]
    assert trainer.seen == list(range(24))


def test_surplus_is_dropped():
    trainer = start(trainer_of(lambda row: row != 1, batch=4, wanted=4))
    batch, _ = one_step(trainer)
    assert batch.non_tensor_batch["extra_info"].tolist() == [0, 0, 2, 2, 3, 3, 4, 4]
    assert (trainer._counts.batches, trainer._counts.surplus) == (2, 3)


def test_larger_generation_batches():
    trainer = start(trainer_of(lambda row: row % 2 == 1, batch=8, wanted=4))
    batch, _ = one_step(trainer)
    assert batch.non_tensor_batch["extra_info"].tolist()[::GROUP] == [1, 3, 5, 7]
    assert trainer._counts.batches == 1


def test_the_limit_names_what_was_found():
    trainer = start(trainer_of(lambda row: row == 5, limit=3))
    with pytest.raises(UserError, match="1 of 4 groups after 3 generation batches") as caught:
        one_step(trainer)
    assert "max_num_gen_batches" in caught.value.next_step
    sent = pickle.loads(pickle.dumps(caught.value))  # as from a Ray actor
    assert (str(sent), sent.exit_code) == (str(caught.value), 2)


def test_the_limit_allows_a_batch_that_is_full_at_it():
    trainer = start(trainer_of(lambda row: row >= 8, limit=3))
    one_step(trainer)
    assert trainer._counts.batches == 3


def test_an_unknown_metric_names_those_there_are():
    trainer = start(trainer_of(lambda row: True))
    trainer.config.algorithm.filter_groups.metric = "accuracy"
    with pytest.raises(UserError, match="'accuracy', but the rewards give acc"):
        one_step(trainer)


def test_validation_is_left_alone():
    trainer = start(trainer_of(lambda row: False))
    requests = DataProto.from_single_dict(prompts_of([0, 1, 2, 3])).repeat(GROUP, interleave=True)
    requests.meta_info.update(validate=True, global_steps=7)
    assert len(trainer._generate_full_batch(requests)) == 8
    assert not hasattr(trainer, "_counts")
