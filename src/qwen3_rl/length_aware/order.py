"""The order in which an epoch visits the dataset's rows; numpy only."""

from dataclasses import dataclass

import numpy as np

from qwen3_rl.length_aware.statistics import LengthStatistics


@dataclass(frozen=True)
class OrderSettings:
    """batch_size: rows a batch. seed: of everything random here. bucket_size: tokens; rows whose expected longest
    responses lie in one bucket count as equal. shuffle_batch_blocks: batches in random order, else longest first.
    shuffle_first_epoch: an epoch without any estimate is shuffled, else in the dataset's order."""

    batch_size: int
    seed: int = 0
    bucket_size: int = 1024
    shuffle_batch_blocks: bool = True
    shuffle_first_epoch: bool = False


def tail_rows(rows: int, settings: OrderSettings, epoch: int) -> np.ndarray:
    """int64 [rows % batch_size]: the rows that a loader with drop_last leaves out in ``epoch``.

    A window that moves around a fixed random circle of all rows: after E epochs no row was left out more than
    ceil(E * (rows % batch_size) / rows) times, and nothing can do better with whole batches.
    """
    tail = rows % settings.batch_size
    circle = np.random.default_rng([settings.seed, 0]).permutation(rows)
    return circle[(epoch * tail + np.arange(tail)) % rows]


def epoch_order(statistics: LengthStatistics, settings: OrderSettings, epoch: int) -> np.ndarray:
    """int64 [rows], a permutation: whole batches of about equally long responses, then the epoch's tail.

    Inside a batch the longest come first, so that with more requests than slots none of them starts last.
    """
    rows = len(statistics.updates)
    rng = np.random.default_rng([settings.seed, 1, epoch])
    tail = tail_rows(rows, settings, epoch)
    known = bool(statistics.updates.any())
    # A shuffle also decides among rows that are estimated alike.
    body = rng.permutation(rows) if known or settings.shuffle_first_epoch else np.arange(rows)
    if len(tail):
        in_tail = np.zeros(rows, bool)
        in_tail[tail] = True
        body = body[~in_tail[body]]
    if known:
        bucket = np.floor_divide(statistics.longest(body), settings.bucket_size)
        bucket[~statistics.seen(body)] = np.inf  # may be long: with the longest they make no short batch wait
        body = body[np.lexsort((-statistics.typical(body), -bucket))]
        if settings.shuffle_batch_blocks:
            blocks = body.reshape(-1, settings.batch_size)
            body = blocks[rng.permutation(len(blocks))].ravel()
    return np.concatenate([body, tail])
