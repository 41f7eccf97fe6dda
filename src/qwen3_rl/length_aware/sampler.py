"""The sampler that veRL's train loader uses: order, statistics and an iterator that resumes exactly.

veRL's trainer builds it (main_ppo.create_rl_sampler), iterates over it through torchdata's StatefulDataLoader without
workers, and calls update() with each step's batch before it saves a checkpoint.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sized

import numpy as np
from verl.experimental.dataset.sampler import AbstractCurriculumSampler

from qwen3_rl.errors import UserError
from qwen3_rl.length_aware import MAX_TOKENS, ROW_ID
from qwen3_rl.length_aware.order import OrderSettings, epoch_order
from qwen3_rl.length_aware.statistics import LengthStatistics, group_moments

SAMPLER_KEYS = ("class_path", "class_name", "bucket_size", "ema_decay", "shuffle_batch_blocks")
FINGERPRINT_ROWS = 256


class LengthAwareEpochSampler(AbstractCurriculumSampler):
    """Visits every row once an epoch, rows with about equally long responses in one batch.

    data_config: veRL's `data`; of its `sampler` the keys bucket_size (tokens, default 1024), ema_decay (default 0.7),
    shuffle_batch_blocks (default True). data.shuffle says whether the first epoch, when nothing is known, is shuffled.
    drop_last: whether the loader drops the epoch's last rows that fill no batch; veRL's does. Raises UserError.
    """

    def __init__(self, data_source: Sized, data_config: Mapping, *, drop_last: bool = True):
        self.rows = len(data_source)
        self.settings, ema_decay = read_settings(data_config)
        self.drop_last = drop_last
        self.statistics = LengthStatistics(self.rows, ema_decay)
        self.fingerprint = fingerprint(data_source)
        self.epoch = 0  # the next to be started

    def __len__(self) -> int:
        return self.rows

    def __iter__(self) -> "EpochIterator":
        return EpochIterator(self)

    def update(self, batch) -> dict[str, float]:
        """Take in a step's responses (a DataProto); returns the step's metrics.

        Reads response_mask, the row ids, and the cap that the batch was generated under, if any.
        """
        lengths = generated_tokens(batch)
        moments = group_moments(row_ids(batch), lengths)
        cap = batch.meta_info.get(MAX_TOKENS)
        capped_from = cap if cap is not None and cap < batch.batch["responses"].shape[-1] else None
        metrics = {}
        known = self.statistics.seen(moments.rows)
        if known.any():
            missed = np.abs(self.statistics.longest(moments.rows[known]) - moments.longest[known])
            metrics["rollout/length_estimate_error"] = float(missed.sum() / moments.longest[known].sum())
        if cap is not None:
            capped = 0.0 if capped_from is None else float(np.mean(lengths >= capped_from))
            metrics["rollout/capped_ratio"] = capped
        self.statistics.update(moments, capped_from)
        return metrics | {"rollout/rows_never_seen": self.statistics.never_seen()}

    def expected_longest(self, batch) -> float | None:
        """Tokens of the longest response that the batch's rows are expected to give; None where one was never seen."""
        rows = row_ids(batch)
        return float(self.statistics.longest(rows).max()) if self.statistics.seen(rows).all() else None


class EpochIterator(Iterator[int]):
    """One epoch. Its state is the order, the position in it, and the sampler's statistics.

    The order is made when the first row is asked for, by when the epoch before has been taken in. An iterator that is
    resumed where no batch is left continues with the next epoch; veRL would otherwise train one epoch too few.
    """

    def __init__(self, sampler: LengthAwareEpochSampler):
        self.sampler = sampler
        self.order: np.ndarray | None = None
        self.position = 0

    def __next__(self) -> int:
        sampler = self.sampler
        if self.order is None:
            self.order = epoch_order(sampler.statistics, sampler.settings, sampler.epoch)
            sampler.epoch += 1
        if self.position == len(self.order):
            raise StopIteration
        self.position += 1
        return int(self.order[self.position - 1])

    def state_dict(self) -> dict:
        return {
            "sampler": type(self.sampler).__name__,
            "rows": self.sampler.rows,
            "fingerprint": self.sampler.fingerprint,
            "epoch": self.sampler.epoch,
            "statistics": self.sampler.statistics.state(),
            "order": self.order,
            "position": self.position,
        }

    def load_state_dict(self, state: dict) -> None:
        sampler = self.sampler
        check_state(state, sampler)
        sampler.statistics.load(state["statistics"])
        sampler.epoch = state["epoch"]
        self.order, self.position = state["order"], state["position"]
        left = sampler.rows - self.position
        if left < (sampler.settings.batch_size if sampler.drop_last else 1):
            self.order, self.position = None, 0


def row_ids(batch) -> np.ndarray:
    """int64 [rows of the batch]: their positions in the dataset."""
    if ROW_ID not in batch.non_tensor_batch:
        raise UserError(
            f"the batch has no {ROW_ID}, so the sampler cannot know whose response lengths these are",
            f"let the dataset class's __getitem__ set {ROW_ID} to the row's position, as veRL's RLHFDataset does",
        )
    return np.asarray(batch.non_tensor_batch[ROW_ID], dtype=np.int64)


def generated_tokens(batch) -> np.ndarray:
    """int64 [responses]: tokens that were generated for each response.

    response_mask leaves out what tools answered. It also lacks what rejection sampling has masked, so for answers of a
    single turn (two messages) the attention mask counts.
    """
    generated = batch.batch["response_mask"].sum(-1)
    if "__num_turns__" in batch.non_tensor_batch:
        single = np.asarray(batch.non_tensor_batch["__num_turns__"], dtype=np.int64) <= 2
        attended = batch.batch["attention_mask"][:, -batch.batch["responses"].shape[-1] :].sum(-1)
        return np.where(single, attended.numpy(), generated.numpy()).astype(np.int64)
    return generated.numpy().astype(np.int64)


def read_settings(data_config: Mapping) -> tuple[OrderSettings, float]:
    """The order's settings and ema_decay from veRL's `data`; raises UserError naming key and value."""
    sampler = data_config.get("sampler") or {}
    for key, value in sampler.items():
        if key not in SAMPLER_KEYS:
            raise UserError(
                f"data.sampler.{key}={value} is unknown to LengthAwareEpochSampler",
                f"use {', '.join(f'+data.sampler.{name}' for name in SAMPLER_KEYS[2:])}",
            )
    workers = data_config.get("dataloader_num_workers", 8)
    if workers != 0:
        raise UserError(
            f"data.dataloader_num_workers={workers}: workers fetch rows before the lengths that order them are known",
            "set data.dataloader_num_workers=0",
        )
    bucket_size = sampler.get("bucket_size", 1024)
    if not (_is_number(bucket_size) and bucket_size > 0):
        raise UserError(f"data.sampler.bucket_size={bucket_size}", "give it a number of tokens above 0")
    ema_decay = sampler.get("ema_decay", 0.7)
    if not (_is_number(ema_decay) and 0 <= ema_decay <= 1):
        raise UserError(f"data.sampler.ema_decay={ema_decay}", "give it a number from 0 (last epoch only) to 1")
    blocks = sampler.get("shuffle_batch_blocks", True)
    if not isinstance(blocks, bool):
        raise UserError(f"data.sampler.shuffle_batch_blocks={blocks}", "set it to True or False")
    batch_size = data_config.get("gen_batch_size") or data_config["train_batch_size"]
    settings = OrderSettings(
        batch_size=batch_size,
        seed=data_config.get("seed") or 0,
        bucket_size=bucket_size,
        shuffle_batch_blocks=blocks,
        shuffle_first_epoch=bool(data_config.get("shuffle", True)),
    )
    return settings, float(ema_decay)


def check_state(state: dict, sampler: LengthAwareEpochSampler) -> None:
    if state.get("sampler") != type(sampler).__name__:
        raise UserError(
            "the checkpoint's data.pt was written with another sampler than data.sampler.class_name="
            f"{type(sampler).__name__}",
            "resume with the sampler it was written with, or remove data.pt to begin the data anew",
        )
    if (state["rows"], state["fingerprint"]) != (sampler.rows, sampler.fingerprint):
        raise UserError(
            f"data.train_files has changed since the checkpoint: {sampler.rows} rows with fingerprint "
            f"{sampler.fingerprint}, then {state['rows']} rows with {state['fingerprint']}",
            "resume with the dataset of the checkpoint, or remove its data.pt to begin the data anew",
        )


def fingerprint(data_source: Sized) -> str:
    """12 hex digits over the number of rows and up to 256 of them, evenly spread."""
    rows = getattr(data_source, "dataframe", data_source)  # RLHFDataset: without building prompts
    digest = hashlib.sha256(str(len(rows)).encode())
    for index in np.linspace(0, len(rows) - 1, min(FINGERPRINT_ROWS, len(rows))).astype(int):
        digest.update(json.dumps(rows[int(index)], sort_keys=True, default=lambda value: type(value).__name__).encode())
    return digest.hexdigest()[:12]


def _is_number(value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
