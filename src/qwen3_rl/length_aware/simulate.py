"""`qwen3-rl simulate-sampler`: what an order of the rows costs on a machine with so many slots, before any run.

The machine: all requests of a batch are dealt out to the replicas in turn, as veRL's balancer does when none has
finished; a replica runs `slots` at once, the others wait in order; a slot makes one token a tick, however many are
busy. The next batch starts when the last response is done.

Policies: shuffle; this package's sampler; the oracle, which knows the lengths of the epoch to come; and the naive EMA:
sorted by a moving average of the mean length, rows beyond the last whole batch never used.
"""

import argparse
import heapq
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from qwen3_rl.errors import UserError
from qwen3_rl.length_aware.order import OrderSettings, epoch_order, tail_rows
from qwen3_rl.length_aware.statistics import LengthStatistics, group_moments


@dataclass(frozen=True)
class EpochResult:
    """makespan: ticks of all batches together. bubble: share of the slot-time in which a slot was idle. step_variation:
    standard deviation of the batches' times over their mean. gain: time saved against shuffle; share_of_oracle: that
    over what the oracle saves (None in the first epoch, when nothing is known)."""

    policy: str
    epoch: int
    makespan: int
    bubble: float
    step_variation: float
    gain: float
    share_of_oracle: float | None


@dataclass(frozen=True)
class Trained:
    """How often the rows were trained on over all epochs: the least, the most, and how many rows never."""

    policy: str
    least: int
    most: int
    never: int


def batch_ticks(lengths: np.ndarray, replicas: int, slots: int) -> int:
    """Ticks until the last of the requests is done; lengths: int [requests], in the order of submission."""
    last = 0
    for replica in range(replicas):
        queue = lengths[replica::replicas].tolist()
        busy = queue[:slots]
        heapq.heapify(busy)
        for length in queue[slots:]:
            heapq.heapreplace(busy, busy[0] + length)
        last = max(last, max(busy, default=0))
    return last


class Shuffle:
    def __init__(self, rows: int, settings: OrderSettings):
        self.rows, self.settings = rows, settings

    def order(self, epoch: int, lengths: np.ndarray) -> np.ndarray:
        return np.random.default_rng([self.settings.seed, 2, epoch]).permutation(self.rows)

    def learn(self, rows: np.ndarray, lengths: np.ndarray) -> None:
        pass


class Oracle(Shuffle):
    def order(self, epoch: int, lengths: np.ndarray) -> np.ndarray:
        tail = tail_rows(self.rows, self.settings, epoch)
        longest = np.argsort(-lengths.max(axis=1), kind="stable")
        return np.concatenate([longest[~np.isin(longest, tail)], tail])


class NaiveEma(Shuffle):
    def __init__(self, rows: int, settings: OrderSettings, ema_decay: float):
        super().__init__(rows - rows % settings.batch_size, settings)
        self.ema_decay = ema_decay
        self.mean = None

    def order(self, epoch: int, lengths: np.ndarray) -> np.ndarray:
        return super().order(epoch, lengths) if self.mean is None else np.argsort(self.mean, kind="stable")

    def learn(self, rows: np.ndarray, lengths: np.ndarray) -> None:
        observed = np.zeros(self.rows)
        observed[rows] = lengths.mean(axis=1)
        self.mean = observed if self.mean is None else self.mean + (1 - self.ema_decay) * (observed - self.mean)


class Sampler(Shuffle):
    def __init__(self, rows: int, settings: OrderSettings, ema_decay: float):
        super().__init__(rows, settings)
        self.statistics = LengthStatistics(rows, ema_decay)

    def order(self, epoch: int, lengths: np.ndarray) -> np.ndarray:
        return epoch_order(self.statistics, self.settings, epoch)

    def learn(self, rows: np.ndarray, lengths: np.ndarray) -> None:
        self.statistics.update(group_moments(np.repeat(rows, lengths.shape[1]), lengths.ravel()))


def simulate(
    lengths: np.ndarray, settings: OrderSettings, ema_decay: float, replicas: int, slots: int
) -> tuple[list[EpochResult], list[Trained]]:
    """Run all policies over ``lengths`` (int, tokens, [epochs, rows, siblings])."""
    rows, batch = lengths.shape[1], settings.batch_size
    policies = {
        "shuffle": Shuffle(rows, settings),
        "naive EMA": NaiveEma(rows, settings, ema_decay),
        "sampler": Sampler(rows, settings, ema_decay),
        "oracle": Oracle(rows, settings),
    }
    counts = {name: np.zeros(rows, int) for name in policies}
    results = []
    for epoch, drawn in enumerate(lengths):
        ticks, tokens = {}, {}
        for name, policy in policies.items():
            order = policy.order(epoch, drawn)[: rows // batch * batch]  # the loader drops the rest
            ticks[name] = np.array(
                [batch_ticks(drawn[block].ravel(), replicas, slots) for block in order.reshape(-1, batch)]
            )
            tokens[name] = int(drawn[order].sum())
            counts[name][order] += 1
            policy.learn(order, drawn[order])
        total = {name: int(values.sum()) for name, values in ticks.items()}
        saved = total["shuffle"] - total["oracle"]
        for name, values in ticks.items():
            gain = total["shuffle"] - total[name]
            results.append(
                EpochResult(
                    policy=name,
                    epoch=epoch + 1,
                    makespan=total[name],
                    bubble=1 - tokens[name] / (total[name] * replicas * slots),
                    step_variation=float(values.std() / values.mean()),
                    gain=gain / total["shuffle"],
                    share_of_oracle=gain / saved if epoch and saved > 0 else None,
                )
            )
    trained = [Trained(name, int(c.min()), int(c.max()), int(np.sum(c == 0))) for name, c in counts.items()]
    return results, trained


def draw_lengths(
    kind: str, rows: int, epochs: int, siblings: int, noise: float, uneven: bool, drift: float, most: int, seed: int
) -> np.ndarray:
    """int64 [epochs, rows, siblings]: lengths between 1 and ``most`` tokens.

    A row's median is lognormal about 2000 with sigma 1, or in "bimodal" near 1500 for three rows of four and near 16000
    for the fourth (sigma 0.25). Siblings differ from it by a factor of sigma ``noise``, in ``uneven`` rows by a sigma
    of their own between 0 and twice that; it moves by a factor of sigma ``drift`` from epoch to epoch.
    """
    rng = np.random.default_rng(seed)
    if kind == "lognormal":
        median = np.log(2000) + rng.normal(0, 1, rows)
    else:
        median = np.log(np.where(rng.random(rows) < 0.25, 16000, 1500)) + rng.normal(0, 0.25, rows)
    sigma = noise * rng.uniform(0, 2, (rows, 1)) if uneven else noise
    drawn = np.empty((epochs, rows, siblings), np.int64)
    for epoch in range(epochs):
        drawn[epoch] = np.clip(np.exp(median[:, None] + sigma * rng.normal(0, 1, (rows, siblings))), 1, most)
        median += rng.normal(0, drift, rows)
    return drawn


def read_lengths(path: Path) -> np.ndarray:
    """int64 [epochs, rows, siblings] from {"lengths": [[[tokens of each sibling], ... epochs], ... rows]}, JSON."""
    form = 'a trace is {"lengths": [ROW, ...]}, a row one list for each epoch of its siblings\' lengths'
    try:
        lengths = np.array(json.loads(path.read_text(encoding="utf-8"))["lengths"])
        if lengths.ndim != 3 or lengths.dtype.kind != "i" or lengths.size == 0 or lengths.min() < 0:
            raise ValueError("not a full table of whole numbers from 0 up")
    except (KeyError, TypeError, ValueError) as error:
        what = f"key {error} is missing" if isinstance(error, KeyError) else str(error)
        raise UserError(f"{path} is no length trace: {what}", form) from None
    return lengths.transpose(1, 0, 2)


def table(results: list[EpochResult], trained: list[Trained]) -> str:
    lines = [
        f"{'epoch':>5} {'policy':<10} {'makespan':>10} {'saved':>7} {'of oracle':>9} {'bubble':>7} {'variation':>9}"
    ]
    for r in results:
        share = "-" if r.share_of_oracle is None else f"{r.share_of_oracle:.1%}"
        lines.append(
            f"{r.epoch:>5} {r.policy:<10} {r.makespan:>10} {r.gain:>7.1%} {share:>9} {r.bubble:>7.1%}"
            f" {r.step_variation:>9.2f}"
        )
    lines += ["", f"{'times a row was trained on':<27} {'least':>6} {'most':>6} {'rows never':>11}"]
    lines += [f"{t.policy:<27} {t.least:>6} {t.most:>6} {t.never:>11}" for t in trained]
    return "\n".join(lines)


def draw(results: list[EpochResult], path: Path) -> None:
    """Makespan, bubble and step-time variation over the epoch, a line for each policy."""
    try:
        import matplotlib
    except ImportError:
        raise UserError("--png needs matplotlib", "pip install matplotlib, or leave --png out") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator

    panels = {
        "makespan": "time of an epoch (ticks)",
        "bubble": "idle share of the slots",
        "step_variation": "step time: deviation / mean",
    }
    figure, axes = pyplot.subplots(1, len(panels), figsize=(11, 3.6), layout="constrained")
    for axis, (field, label) in zip(axes, panels.items(), strict=True):
        for policy in dict.fromkeys(r.policy for r in results):
            rows = [r for r in results if r.policy == policy]
            axis.plot([r.epoch for r in rows], [getattr(r, field) for r in rows], marker="o", label=policy)
        axis.set_xlabel("epoch")
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise UserError(f"can't write {path}: {error}", "give --png a path such as sampler.png") from None
    finally:
        pyplot.close(figure)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--trace", type=Path, metavar="FILE", help="recorded lengths, JSON (docs/length-aware.md), instead of drawn")
    add("--lengths", choices=["lognormal", "bimodal"], default="lognormal", help="drawn lengths (default: lognormal)")
    add("--noise", type=float, default=0.3, help="sigma of a row's siblings, drawn lengths (default: 0.3)")
    add("--uneven", action="store_true", help="rows differ in their siblings' sigma: between 0 and twice --noise")
    add("--drift", type=float, default=0.1, help="sigma of a row's move an epoch, drawn lengths (default: 0.1)")
    add("--max-tokens", type=int, default=32768, help="longest response, drawn lengths (default: 32768)")
    add("--rows", type=int, default=16500, help="rows of the dataset, drawn lengths (default: 16500)")
    add("--epochs", type=int, default=4, help="epochs, drawn lengths (default: 4)")
    add("--n", type=int, default=16, help="responses a prompt, drawn lengths (default: 16)")
    add("--batch", type=int, default=512, help="prompts a batch (default: 512)")
    add("--replicas", type=int, default=32, help="rollout replicas (default: 32)")
    add("--slots", type=int, default=128, help="requests that a replica runs at once (default: 128)")
    add("--bucket-size", type=int, default=1024, help="as data.sampler.bucket_size (default: 1024)")
    add("--ema-decay", type=float, default=0.7, help="as data.sampler.ema_decay (default: 0.7)")
    add("--seed", type=int, default=0, help="of the lengths and the orders (default: 0)")
    add("--json", action="store_true", help="print one JSON object instead of tables")
    add("--png", type=Path, metavar="FILE", help="also draw the epochs")


def run(args: argparse.Namespace) -> int:
    for name in ("rows", "epochs", "n", "batch", "replicas", "slots", "bucket_size", "max_tokens"):
        if getattr(args, name) < 1:
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{option} is {getattr(args, name)}", f"give {option} a number of at least 1")
    for name in ("noise", "drift"):
        if not getattr(args, name) >= 0:
            raise UserError(f"--{name} is {getattr(args, name)}", f"give --{name} a number of at least 0")
    if not 0 <= args.ema_decay <= 1:
        raise UserError(f"--ema-decay is {args.ema_decay}", "give --ema-decay a number from 0 to 1")
    if args.trace:
        lengths = read_lengths(args.trace)
    else:
        lengths = draw_lengths(
            args.lengths,
            args.rows,
            args.epochs,
            args.n,
            args.noise,
            args.uneven,
            args.drift,
            args.max_tokens,
            args.seed,
        )
    if args.batch > lengths.shape[1]:
        raise UserError(f"--batch {args.batch} is more than the {lengths.shape[1]} rows", "give a smaller --batch")
    settings = OrderSettings(args.batch, args.seed, args.bucket_size, shuffle_first_epoch=True)
    results, trained = simulate(lengths, settings, args.ema_decay, args.replicas, args.slots)
    if args.json:
        print(json.dumps({"epochs": [asdict(r) for r in results], "trained": [asdict(t) for t in trained]}, indent=1))
    else:
        print(table(results, trained))
    if args.png:
        draw(results, args.png)
    return 0
