"""Which groups teach something: those whose responses do not all have the same value of a metric."""

import numpy as np


def kept_groups(values: np.ndarray, group_size: int) -> np.ndarray:
    """Indices of the groups to keep, in order.

    ``values``: float[groups * group_size], the metric of each response, the responses of a group side by side. A group
    whose values are all equal has advantages of zero and is left out. A group of one response is kept.
    """
    groups = np.asarray(values, dtype=np.float64).reshape(-1, group_size)
    return np.flatnonzero((groups != groups[:, :1]).any(axis=1) | (group_size == 1))


def rows_of(groups: np.ndarray, group_size: int) -> np.ndarray:
    """Row indices of ``groups``: int[len(groups) * group_size]."""
    return (groups[:, None] * group_size + np.arange(group_size)).ravel()
