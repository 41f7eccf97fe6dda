import numpy as np
import pytest

from qwen3_rl.dapo.batches import Batches
from qwen3_rl.dapo.groups import kept_groups, rows_of


@pytest.mark.parametrize(
    ("values", "size", "kept"),
    [
        ([0, 0, 1, 1, 0, 1], 2, [2]),
        ([0, 0, 0, 0, 0, 1], 3, [1]),
        ([1, 1, 1, 1], 4, []),
        ([0.1, 0.1 + 1e-12], 2, [0]),
        ([True, False, True, True], 2, [0]),
        ([5, 6, 7], 1, [0, 1, 2]),  # a group of one has no spread, and is not DAPO's to judge
        ([], 4, []),
    ],
)
def test_groups_with_different_values_are_kept(values, size, kept):
    assert kept_groups(np.array(values), size).tolist() == kept


def test_nan_counts_as_different_from_everything():
    assert kept_groups(np.array([np.nan, np.nan, 0, 0]), 2).tolist() == [0]


def test_rows_of_groups():
    assert rows_of(np.array([2, 0]), 3).tolist() == [6, 7, 8, 0, 1, 2]


class TestBatches:
    """Epochs of four batches, 0 to 3."""

    def loop(self, batches, more_after):
        """What a training loop of three epochs takes; after each batch in ``more_after`` it asks for one more."""
        taken = []
        for _ in range(3):
            epoch = []
            for batch in batches:
                epoch.append(batch)
                if len(taken) == 0 and batch in more_after:
                    epoch.append(f"+{batches.more()}")
            taken.append(epoch)
        return taken

    def test_without_more_it_is_the_loader(self):
        assert self.loop(Batches(range(4)), set()) == [[0, 1, 2, 3]] * 3

    def test_more_takes_from_the_epoch_under_way(self):
        assert self.loop(Batches(range(4)), {1})[0] == [0, 1, "+2", 3]

    def test_more_at_the_end_begins_the_next_epoch_which_goes_on(self):
        taken = self.loop(Batches(range(4)), {3})
        assert taken == [[0, 1, 2, 3, "+0"], [1, 2, 3], [0, 1, 2, 3]]

    def test_the_rest_is_the_loaders(self):
        loader = np.arange(3)
        assert Batches(loader).shape == (3,)
        assert len(Batches(loader)) == 3
