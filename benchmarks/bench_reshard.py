"""Expert weights from training to rollout: bytes of the plan against all-gather's, Qwen3-235B-A22B on 128 dies.

    python benchmarks/bench_reshard.py

Arithmetic on the real plan, no weights; GB are 10^9 bytes. That the executor moves just these bytes, and the right
ones: python -m tests.moe_overlap.reshard_ranks 16
"""

from time import process_time

from qwen3_rl.moe_overlap.reshard import Sizes, TrainLayout, plan_reshard, traffic

DIES, LAYERS, EXPERTS = 128, 94, 128
SIZES = Sizes(hidden=4096, ffn=1536, itemsize=2)
# Layers a stage, expert and expert tensor parallel size, what it is.
TRAIN = [
    ((23, 24, 24, 23), 32, 1, "PP 4, EP 32 (shipped)"),
    ((23, 24, 24, 23), 16, 1, "PP 4, EP 16, 2 replicas"),
    ((23, 24, 24, 23), 8, 4, "PP 4, EP 8, ETP 4"),
    ((12,) * 6 + (11,) * 2, 16, 1, "PP 8, EP 16"),
    ((47, 47), 64, 1, "PP 2, EP 64"),
    ((94,), 128, 1, "PP 1, EP 128"),
]
# Expert parallel size, what it is. Smaller ones do not fit: a die has 64 GB.
ROLLOUT = {16: "TP 4 x DP 4 (shipped)", 32: "TP 4 x DP 8", 128: "TP 4 x DP 32"}


def stages(counts: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """That many layers for each stage, in order."""
    assert sum(counts) == LAYERS
    ends = [sum(counts[: i + 1]) for i in range(len(counts))]
    return tuple(tuple(range(end - count, end)) for end, count in zip(ends, counts, strict=True))


def span(values: list[int]) -> str:
    low, high = (f"{value / 1e9:.1f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def main() -> None:
    begun = process_time()
    print(
        "| training | rollout | a die needs | receives | lower bound | sends | all-gather receives | less | buffers |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for counts, ep, etp, train_name in TRAIN:
        train = TrainLayout(DIES, stages(counts), ep, etp)
        for rollout_ep, rollout_name in ROLLOUT.items():
            plan = plan_reshard(train, rollout_ep, EXPERTS)
            moved = traffic(plan, SIZES)
            assert moved.received == moved.lacking
            need = EXPERTS // rollout_ep * LAYERS * SIZES.expert
            cells = [
                train_name,
                rollout_name,
                f"{need / 1e9:.1f}",
                *(span(part) for part in (moved.received, moved.lacking, moved.sent, moved.gathered)),
                f"{sum(moved.gathered) / sum(moved.received):.0f}x" if plan.pieces else "all",
                f"{max(moved.buffers) / 1e9:.1f}",
            ]
            print("|", " | ".join(cells), "|")
    plans = len(TRAIN) * len(ROLLOUT)
    print(f"\n{plans} plans in {process_time() - begun:.1f} s of CPU time")


if __name__ == "__main__":
    main()
