"""The simulator: its machine against slow reckoning, the goal, its faces."""

import json

import numpy as np
import pytest

from qwen3_rl.cli import main
from qwen3_rl.length_aware.order import OrderSettings
from qwen3_rl.length_aware.simulate import batch_ticks, draw_lengths, simulate


def slow_ticks(lengths: list[int], replicas: int, slots: int) -> int:
    """Token by token."""
    tick = 0
    queues = [list(lengths[r::replicas]) for r in range(replicas)]
    running = [[] for _ in queues]
    while any(queues) or any(running):
        for queue, busy in zip(queues, running, strict=True):
            while queue and len(busy) < slots:
                busy.append(queue.pop(0))
        tick += 1
        running = [[left - 1 for left in busy if left > 1] for busy in running]
    return tick


def test_ticks_of_a_batch():
    rng = np.random.default_rng(0)
    for _ in range(50):
        lengths = rng.integers(1, 30, rng.integers(1, 40))
        replicas, slots = rng.integers(1, 4, 2)
        assert batch_ticks(lengths, replicas, slots) == slow_ticks(lengths.tolist(), replicas, slots)


@pytest.mark.parametrize("kind", ["lognormal", "bimodal"])
def test_most_of_what_the_oracle_saves_by_epoch_3(kind):
    """An eighth of the machine and of the data; docs/length-aware.md has the whole."""
    lengths = draw_lengths(kind, 2060, 3, 16, noise=0.3, uneven=False, drift=0.1, most=32768, seed=0)
    results, trained = simulate(lengths, OrderSettings(64, shuffle_first_epoch=True), 0.7, replicas=4, slots=128)
    shares = {(r.policy, r.epoch): r.share_of_oracle for r in results}
    assert shares["sampler", 3] >= 0.7
    assert abs(shares["shuffle", 3]) < 1e-9
    counts = {t.policy: (t.least, t.most, t.never) for t in trained}
    assert counts["sampler"] == (2, 3, 0)
    assert counts["naive EMA"] == (0, 3, 2060 % 64)


def test_unlike_spreads_are_where_the_estimator_pays():
    lengths = draw_lengths("bimodal", 2048, 3, 16, noise=0.3, uneven=True, drift=0.1, most=32768, seed=0)
    results, _ = simulate(lengths, OrderSettings(64, shuffle_first_epoch=True), 0.7, replicas=4, slots=128)
    makespan = {r.policy: r.makespan for r in results if r.epoch == 3}
    assert makespan["oracle"] < makespan["sampler"] < 0.97 * makespan["naive EMA"] < makespan["shuffle"]


SMALL = ["simulate-sampler", "--rows", "90", "--batch", "8", "--n", "2", "--replicas", "2", "--slots", "4"]


def test_faces(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    png = tmp_path / "sampler.png"
    assert main([*SMALL, "--epochs", "2", "--png", str(png)]) == 0
    output = capsys.readouterr().out
    assert "    2 sampler " in output
    assert "rows never" in output
    assert png.read_bytes().startswith(b"\x89PNG")
    assert main([*SMALL, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [e["policy"] for e in report["epochs"][:4]] == ["shuffle", "naive EMA", "sampler", "oracle"]
    assert {t["policy"]: t["never"] for t in report["trained"]} == {
        "shuffle": 0,
        "naive EMA": 2,
        "sampler": 0,
        "oracle": 0,
    }


def test_a_trace_file(tmp_path, capsys):
    trace = tmp_path / "lengths.json"
    trace.write_text(json.dumps({"lengths": [[[row + 1, row + 2]] * 3 for row in range(8)]}))
    arguments = ["simulate-sampler", "--trace", str(trace), "--batch", "2", "--replicas", "1", "--slots", "4", "--json"]
    assert main(arguments) == 0
    makespan = {(e["policy"], e["epoch"]): e["makespan"] for e in json.loads(capsys.readouterr().out)["epochs"]}
    assert makespan["oracle", 3] == 3 + 5 + 7 + 9
    assert makespan["sampler", 2] == makespan["oracle", 2] < makespan["shuffle", 2]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("[]", "no length trace"),
        ("{}", "'lengths' is missing"),
        ('{"lengths": [[[1], [1]], [[1]]]}', "no length trace"),
    ],
)
def test_a_file_that_is_no_trace(tmp_path, capsys, content, named):
    trace = tmp_path / "lengths.json"
    trace.write_text(content)
    assert main(["simulate-sampler", "--trace", str(trace)]) == 2
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["--bucket-size", "0"], ["--ema-decay", "2"], ["--batch", "100"], ["--noise", "-1"], ["--trace", "absent.json"]],
)
def test_bad_arguments_are_named(capsys, arguments):
    assert main([*SMALL, *arguments]) == 2
    error = capsys.readouterr().err
    assert arguments[0] in error or arguments[1] in error
    assert "next:" in error
