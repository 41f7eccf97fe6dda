"""The sampler in the loader that veRL's trainer makes: every row once an epoch, exact resume, bad input by name."""

import io
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs build_project.sh --target cpu")

from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402

from qwen3_rl.errors import UserError  # noqa: E402
from qwen3_rl.length_aware.sampler import LengthAwareEpochSampler  # noqa: E402

RESPONSE_LENGTH = 64


def config(batch: int, seed: int = 1, **others) -> dict:
    sampler = {"class_path": "pkg://...", "class_name": "LengthAwareEpochSampler", "bucket_size": 4}
    return {
        "train_batch_size": batch,
        "dataloader_num_workers": 0,
        "seed": seed,
        "shuffle": True,
        "sampler": sampler | others.pop("sampler", {}),
    } | others


def loader_of(sampler: LengthAwareEpochSampler, drop_last: bool = True) -> StatefulDataLoader:
    batch = sampler.settings.batch_size
    return StatefulDataLoader(range(sampler.rows), batch_size=batch, sampler=sampler, drop_last=drop_last)


def responses(rows: list[int], lengths: list[int], **meta_info):
    """A batch as the trainer hands it to update()."""
    from verl import DataProto

    mask = (torch.arange(RESPONSE_LENGTH) < torch.tensor(lengths)[:, None]).long()
    data = {"responses": mask, "response_mask": mask.clone(), "attention_mask": mask}
    return DataProto.from_single_dict(data | {"dataset_row": np.array(rows, dtype=object)}, meta_info=meta_info)


def answered(rows: list[int], step: int, siblings: int = 2):
    """Responses to ``rows``, of lengths that depend on row, sibling and step."""
    repeated = [row for row in rows for _ in range(siblings)]
    return responses(repeated, [1 + (7 * row + 5 * i + step) % 60 for i, row in enumerate(repeated)])


def test_the_trainer_knows_it_as_a_curriculum_sampler():
    from verl.experimental.dataset.sampler import AbstractCurriculumSampler

    assert isinstance(LengthAwareEpochSampler(range(8), config(2)), AbstractCurriculumSampler)


@settings(deadline=None, max_examples=150)
@given(
    rows=st.integers(1, 40),
    batch=st.integers(1, 12),
    siblings=st.integers(1, 4),
    drop_last=st.booleans(),
    seed=st.integers(0, 2**31),
    epochs=st.integers(1, 6),
)
def test_every_row_once_an_epoch(rows, batch, siblings, drop_last, seed, epochs):
    """With drop_last the E epochs have places for E * (rows - tail) rows: no row is left out more often than need be,
    which is once at most as long as E * tail <= rows."""
    sampler = LengthAwareEpochSampler(range(rows), config(batch, seed), drop_last=drop_last)
    loader = loader_of(sampler, drop_last)
    trained = np.zeros(rows, int)
    for _ in range(epochs):
        seen = []
        for step, block in enumerate(loader):
            seen += block.tolist()
            sampler.update(answered(block.tolist(), step, siblings))
        trained[seen] += 1
        assert len(set(seen)) == len(seen) == (rows // batch * batch if drop_last else rows)
    tail = rows % batch if drop_last else 0
    least = epochs - math.ceil(epochs * tail / rows)
    assert trained.min() >= least
    assert least >= epochs - 1 or epochs * tail > rows


def test_the_iterator_itself_yields_a_permutation():
    sampler = LengthAwareEpochSampler(range(11), config(4))
    for _ in range(3):
        assert sorted(sampler) == list(range(11))


def train(sampler, loader, epochs: int, done: int = 0):
    """veRL's loop over epochs and batches, from step ``done`` on; yields each step's rows after its update."""
    step = done
    for _ in range(done // len(loader), epochs):
        for block in loader:
            step += 1
            sampler.update(answered(block.tolist(), step))
            yield block.tolist()


def saved(loader) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(loader.state_dict(), file)  # as the trainer writes data.pt
    file.seek(0)
    return file


@pytest.mark.parametrize("rows", [12, 14])  # with and without rows that fill no batch
@pytest.mark.parametrize("done", range(9))
def test_a_resumed_run_is_the_uninterrupted_one(rows, done):
    """Four epochs of four (three) steps, interrupted before the first and after each of two epochs' steps."""
    batch, epochs = (3, 4) if rows == 12 else (4, 4)

    def begin():
        sampler = LengthAwareEpochSampler(range(rows), config(batch))
        return sampler, loader_of(sampler)

    sampler, loader = begin()
    whole = list(train(sampler, loader, epochs))
    interrupted, before = begin()
    steps = train(interrupted, before, epochs)
    first = [next(steps) for _ in range(done)]
    file = saved(before)
    resumed, after = begin()
    after.load_state_dict(torch.load(file, weights_only=False))
    assert first + list(train(resumed, after, epochs, done)) == whole
    for name, value in sampler.statistics.state().items():
        np.testing.assert_array_equal(value, resumed.statistics.state()[name])


@pytest.mark.parametrize("done", range(9))
def test_resume_without_drop_last(done):
    def begin():
        sampler = LengthAwareEpochSampler(range(11), config(3), drop_last=False)
        return sampler, loader_of(sampler, drop_last=False)

    whole = list(train(*begin(), 3))
    sampler, loader = begin()
    steps = train(sampler, loader, 3)
    first = [next(steps) for _ in range(done)]
    file = saved(loader)
    resumed, after = begin()
    after.load_state_dict(torch.load(file, weights_only=False))
    assert first + list(train(resumed, after, 3, done)) == whole


def test_a_saved_state_does_not_change_with_the_sampler():
    sampler = LengthAwareEpochSampler(range(8), config(2))
    loader = loader_of(sampler)
    steps = train(sampler, loader, 2)
    next(steps)
    state = loader.state_dict()
    copy = pickle.dumps(state)
    next(steps)
    assert pickle.dumps(state) == copy


def test_metrics_of_a_step():
    sampler = LengthAwareEpochSampler(range(4), config(2))
    assert sampler.update(responses([0, 0, 1, 1], [10, 10, 20, 20])) == {"rollout/rows_never_seen": 2}
    metrics = sampler.update(responses([0, 0, 2, 2], [8, 20, 5, 5]))
    assert metrics == {"rollout/rows_never_seen": 1, "rollout/length_estimate_error": pytest.approx(0.5)}
    metrics = sampler.update(responses([3, 3, 3, 3], [30, 30, 2, 2], response_max_tokens=30))
    assert metrics == {"rollout/rows_never_seen": 0, "rollout/capped_ratio": 0.5}
    # Where the cap is the response length itself, nothing was cut short of it.
    metrics = sampler.update(responses([3], [RESPONSE_LENGTH], response_max_tokens=RESPONSE_LENGTH))
    assert metrics["rollout/capped_ratio"] == 0


def test_expected_longest_of_a_batch():
    sampler = LengthAwareEpochSampler(range(4), config(2))
    sampler.update(responses([0, 1], [10, 20]))
    assert sampler.expected_longest(responses([0, 1], [1, 1])) == pytest.approx(20)
    assert sampler.expected_longest(responses([1, 2], [1, 1])) is None


def test_lengths_survive_rejection_sampling_and_leave_tools_out():
    sampler = LengthAwareEpochSampler(range(2), config(2))
    batch = responses([0, 1], [30, 30])
    batch.batch["response_mask"][:, 10:] = 0  # in row 0 rejected after generation; in row 1 a tool's answer
    batch.non_tensor_batch["__num_turns__"] = np.array([2, 4])
    sampler.update(batch)
    assert sampler.statistics.typical() == pytest.approx([30, 10])


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"sampler": {"bucket_sise": 7}}, "data.sampler.bucket_sise=7"),
        ({"sampler": {"bucket_size": 0}}, "data.sampler.bucket_size=0"),
        ({"sampler": {"bucket_size": -5}}, "data.sampler.bucket_size=-5"),
        ({"sampler": {"bucket_size": "big"}}, "data.sampler.bucket_size=big"),
        ({"sampler": {"ema_decay": 1.5}}, "data.sampler.ema_decay=1.5"),
        ({"sampler": {"ema_decay": -0.1}}, "data.sampler.ema_decay=-0.1"),
        ({"sampler": {"ema_decay": float("nan")}}, "data.sampler.ema_decay=nan"),
        ({"sampler": {"shuffle_batch_blocks": "maybe"}}, "data.sampler.shuffle_batch_blocks=maybe"),
        ({"dataloader_num_workers": 8}, "data.dataloader_num_workers=8"),
    ],
)
def test_bad_settings_are_named(given, named):
    from omegaconf import OmegaConf

    with pytest.raises(UserError) as caught:
        LengthAwareEpochSampler(range(8), OmegaConf.create(config(2, **given)))
    assert named in str(caught.value)
    assert "next:" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # Ray carries it from actor to driver


def state_after_a_step(data) -> io.BytesIO:
    sampler = LengthAwareEpochSampler(data, config(2))
    loader = loader_of(sampler)
    next(train(sampler, loader, 1))
    return saved(loader)


@pytest.mark.parametrize("changed", [["a", "b", "c", "d", "x"], ["a", "b", "c"], ["a", "b", "c", "D"]])
def test_a_dataset_that_changed_since_the_checkpoint(changed):
    file = state_after_a_step(["a", "b", "c", "d"])
    loader = loader_of(LengthAwareEpochSampler(changed, config(2)))
    loader.load_state_dict(torch.load(file, weights_only=False))
    with pytest.raises(UserError, match=rf"data.train_files has changed .* {len(changed)} rows .* then 4 rows"):
        next(iter(loader))


def test_a_checkpoint_of_another_sampler():
    from torchdata.stateful_dataloader.sampler import RandomSampler

    stock = StatefulDataLoader(range(8), batch_size=2, sampler=RandomSampler(range(8)))
    next(iter(stock))
    loader = loader_of(LengthAwareEpochSampler(range(8), config(2)))
    loader.load_state_dict(stock.state_dict())
    with pytest.raises(UserError, match="written with another sampler"):
        next(iter(loader))


def test_a_batch_without_row_ids():
    batch = responses([0], [5])
    del batch.non_tensor_batch["dataset_row"]
    with pytest.raises(UserError, match="dataset_row"):
        LengthAwareEpochSampler(range(8), config(2)).update(batch)
