"""The figures of a comparison against an independent calculation, and every kind of source."""

import csv
import gzip
import json
import re
from pathlib import Path

import pytest

from qwen3_rl.cli import main
from qwen3_rl.report.comparison import compare
from qwen3_rl.report.sources import read_run
from tests.report.run_logs import log, older, settings, step_line, values, write_jsonl

np = pytest.importorskip("numpy", reason="needs build_project.sh --target cpu")
pytest.importorskip("matplotlib", reason="needs build_project.sh --target cpu")

REAL = Path(__file__).parent / "real"


def result(tmp_path, *arguments) -> dict:
    assert main(["compare", *map(str, arguments), "--out", str(tmp_path / "out")]) == 0
    return json.loads((tmp_path / "out" / "compare.json").read_text())


@pytest.fixture(autouse=True)
def no_picture(request, monkeypatch):
    """Drawing takes a second; one test looks at the picture."""
    if "labels_base_and_files" not in request.node.name:
        monkeypatch.setattr("qwen3_rl.report.curves.write_curves", lambda comparison, path: None)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def quartiles(numbers) -> list[float]:
    return [float(share) for share in np.percentile(list(numbers), (50, 25, 75))]


def test_ratios_of_hand_made_runs(tmp_path):
    slow = write(tmp_path / "slow.log", log(range(1, 12)))
    fast = write(tmp_path / "fast.log", log(range(1, 12), pace=2.0, seed=1, wrap="np.float64({!r})"))
    found = result(tmp_path, slow, fast)
    one, two = ([values(step, pace, seed) for step in range(2, 12)] for pace, seed in ((1.0, 0), (2.0, 1)))
    for key in ("timing_s/gen", "timing_s/update_actor", "timing_s/step", "perf/throughput", "critic/rewards/mean"):
        for cell, steps in zip(found["metrics"][key], (one, two), strict=True):
            assert [cell["median"], cell["low"], cell["high"]] == pytest.approx(quartiles(s[key] for s in steps))
            assert cell["count"] == 10
        base, other = (np.median([s[key] for s in steps]) for steps in (one, two))
        expected = base / other if key.startswith("timing_s/") else other / base
        assert found["metrics"][key][1]["ratio"] == pytest.approx(expected)
    rates = [np.median([s["perf/total_num_tokens"] / s["timing_s/step"] for s in steps]) for steps in (one, two)]
    assert [cell["median"] for cell in found["metrics"]["tokens_per_s"]] == pytest.approx(rates)
    parts = found["runs"][0]["parts_s"]
    assert parts["generation"] == pytest.approx(np.mean([s["timing_s/gen"] for s in one]))
    assert sum(parts.values()) == pytest.approx(np.mean([s["timing_s/step"] for s in one]))
    assert found["warnings"] == []


# Real runs: the quickstart with half the learning rate; then 18 steps of `data countdown` with SAM off and on, and
# beside the latter with the length-aware sampler.
PAIRS = {
    "learning rate": ("quickstart", "quickstart-half-rate", 8, "actor_rollout_ref.actor.optim.lr", ["0.01", "0.005"]),
    "sam": (
        *("countdown-plain", "countdown-sam", 18),
        *("actor_rollout_ref.rollout.engine_kwargs.vllm.speculative_config.method", ["None", "sam"]),
    ),
    "sampler": (
        *(
            "countdown-sam",
            "countdown-length-aware",
            18,
            "data.sampler.class_name",
            ["None", "LengthAwareEpochSampler"],
        ),
    ),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_real_runs(tmp_path, pair):
    *names, steps, setting, differs = PAIRS[pair]
    paths = [REAL / f"{name}.log.gz" for name in names]
    found = result(tmp_path, *paths)
    texts = [gzip.decompress(path.read_bytes()).decode() for path in paths]
    keys = ["timing_s/gen", "timing_s/update_actor", "timing_s/step", "perf/throughput", "perf/mfu/actor"]
    for key in [*keys, "rollout/bubble_ratio", "rollout/spec_decode/acceptance_rate"]:
        logged = [[float(n) for n in re.findall(rf"(?<= - ){re.escape(key)}:(\S+)", text)] for text in texts]
        assert key not in keys or [len(numbers) for numbers in logged] == [steps, steps]
        for cell, numbers in zip(found["metrics"].get(key, [None, None]), logged, strict=True):
            if numbers:
                assert [cell["median"], cell["low"], cell["high"]] == pytest.approx(quartiles(numbers[1:]))
    assert found["settings_that_differ"][setting] == differs
    assert [warning for warning in found["warnings"] if "not the same" in warning] == []
    assert found["agreement"][0]["verdict"] == "differs"  # other samples, or other updates, show in the reward


def test_a_real_run_agrees_with_itself(tmp_path):
    run = REAL / "quickstart.log.gz"
    found = result(tmp_path, run, run, "--must-agree")
    assert [(one["metric"], one["error"], one["verdict"]) for one in found["agreement"]] == [
        (metric, 0, "agrees") for metric in ("critic/rewards/mean", "actor/pg_loss", "rollout_corr/training_log_ppl")
    ]


def test_names_of_another_generation_mean_the_same(tmp_path):
    new = write(tmp_path / "new.log", log(range(1, 6)))
    old = write(
        tmp_path / "old.log", "".join(step_line(s, older(values(s)), wrap="np.float64({!r})") for s in range(1, 6))
    )
    found = result(tmp_path, new, old)
    for key in ("timing_s/gen", "timing_s/step", "perf/throughput"):
        assert found["metrics"][key][1]["ratio"] == 1
    assert found["runs"][0]["curves"]["actor/entropy"] == found["runs"][1]["curves"]["actor/entropy"]
    assert found["runs"][1]["read_from"]["timing_s/gen"] == "timing_s/generate_sequences"
    assert "generation is measured differently: new timing_s/gen, old timing_s/generate_sequences" in found["warnings"]


def test_a_name_that_all_runs_have_comes_first(tmp_path):
    both = [{**values(s), "timing_s/generate_sequences": 1.0} for s in (1, 2)]
    one = write(tmp_path / "one.log", "".join(step_line(s, data) for s, data in enumerate(both, 1)))
    two = write(tmp_path / "two.log", "".join(step_line(s, older(data)) for s, data in enumerate(both, 1)))
    cells = result(tmp_path, one, two, "--warmup", 0)["metrics"]["timing_s/gen"]
    assert [cell["median"] for cell in cells] == [
        1.0,
        np.median([older(d)["timing_s/generate_sequences"] for d in both]),
    ]


def test_what_one_run_alone_logs(tmp_path):
    sam = {
        "rollout/spec_decode/acceptance_rate": 0.5,
        "rollout/spec_decode/mean_accepted": 1.5,
        "rollout/bubble_ratio": 0.2,
    }
    lines = "".join(step_line(s, values(s) | sam) for s in (1, 2, 3))
    found = result(tmp_path, write(tmp_path / "off.log", log(range(1, 4))), write(tmp_path / "on.log", lines))
    for key, value in sam.items():
        off, on = found["metrics"][key]
        assert (off, on["median"], on["ratio"]) == (None, value, None)


def test_every_kind_of_source(tmp_path):
    steps = range(1, 6)
    folder = tmp_path / "RUN"
    folder.mkdir()
    write_jsonl(folder / "verl-tracking.jsonl", steps)  # a job that still runs
    write(folder / "train.log", log([1]))
    write(folder / "trees.txt", "verl 0.7.1               6 patches  23a6498f90d6  /frameworks/verl/verl\n")
    flat = write(tmp_path / "flat.jsonl", "".join(json.dumps({"step": s, **values(s)}) + "\n" for s in steps))
    sources = [write(tmp_path / "a.log", log(steps)), folder, flat, write_jsonl(tmp_path / "b.jsonl", steps)]
    found = result(tmp_path, *sources)
    assert [cell["ratio"] for cell in found["metrics"]["timing_s/step"]] == [1, 1, 1, 1]
    assert found["runs"][1]["versions"] == {"verl": "0.7.1 (23a6498f90d6)"}
    assert found["warnings"] == ["model and settings are unknown for flat, b: only metrics were compared"]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("size", [3000, 4096, 10_000, 200_000])
def test_a_step_longer_than_a_buffer(tmp_path, packed, size):
    text = "".join(json.dumps({"step": s, "filling": "x" * size, **values(s)}) + "\n" for s in (1, 2, 3)).encode()
    path = tmp_path / "long.jsonl"
    path.write_bytes(gzip.compress(text) if packed else text)
    assert read_run(path).steps.training() == [1, 2, 3]


def test_null_in_jsonl_is_nan(tmp_path):
    lines = [json.dumps({"step": s, "data": values(s) | {"actor/pg_loss": None}}) for s in (1, 2, 3)]
    bad = write(tmp_path / "bad.jsonl", "\n".join([*lines, '{"step": 4, "data": {"timing_s/st']))
    found = result(tmp_path, write(tmp_path / "good.log", log(range(1, 4))), bad)
    assert "bad: 1 lines hold no whole step and were left out" in found["warnings"]
    loss = next(one for one in found["agreement"] if one["metric"] == "actor/pg_loss")
    assert loss["verdict"] == "differs: NaN or infinite in 3 steps"


def test_what_is_not_finite_is_counted_and_left_out(tmp_path):
    odd = [values(s) | ({"timing_s/gen": float("nan")} if s == 2 else {}) for s in range(1, 5)]
    path = write(tmp_path / "odd.log", "".join(step_line(s, data) for s, data in enumerate(odd, 1)))
    cell = result(tmp_path, write(tmp_path / "good.log", log(range(1, 5))), path)["metrics"]["timing_s/gen"][1]
    assert (cell["count"], cell["bad"]) == (2, 1)
    assert cell["median"] == pytest.approx(np.median([values(s)["timing_s/gen"] for s in (3, 4)]))


def test_warnings_of_runs_that_are_not_comparable(tmp_path):
    other = "verl 0.6.1               0 patches  0123456789ab  /x\nverl 0.6.1\n" + settings(
        model="/m/Qwen3-8B", batch=64
    )
    lines = "".join(
        step_line(s, values(s, batch=64) | {"prompt_length/mean": 40.0, "response_length/mean": 3.5})
        for s in range(1, 9)
    )
    one = write(tmp_path / "a.log", "verl 0.7.1               6 patches  23a6498f90d6  /x\n" + log(range(1, 6)))
    warnings = "\n".join(result(tmp_path, one, write(tmp_path / "b.log", other + lines))["warnings"])
    assert "not the same steps (a 1-5 (5 steps), b 1-8 (8 steps)): only 2-5 (4 steps) are compared" in warnings
    assert "not the same prompts a step: a 32, b 64" in warnings
    assert "not the same model: a Qwen3-4B, b Qwen3-8B" in warnings
    assert "not the same version of verl: a 0.7.1 (23a6498f90d6), b 0.6.1 (0123456789ab)" in warnings
    assert "not the same prompts, by their mean length: a 23.0, b 40.0" in warnings
    assert re.search(r"not the same responses .*, by their mean length: a 6.9, b 3.5", warnings)


def test_what_metrics_alone_tell_of_batch_devices_and_limit(tmp_path):
    changed = {"perf/throughput": 7.0, "response_length/max": 16.0}
    lines = "".join(step_line(s, values(s, batch=64) | changed) for s in range(1, 4))
    one, two = write(tmp_path / "a.log", log(range(1, 4))), write(tmp_path / "b.log", lines)
    warnings = "\n".join(result(tmp_path, one, two)["warnings"])
    assert "not the same responses a step: a 256, b 512" in warnings
    assert re.search(r"not the same devices \(compare tokens/s per device\): a 2, b \d+", warnings)
    assert "not the same longest response allowed: a 8.0, b 16.0" in warnings


def test_no_step_in_common(tmp_path):
    one, two = write(tmp_path / "a.log", log(range(1, 4))), write(tmp_path / "b.log", log(range(10, 14)))
    found = result(tmp_path, one, two)
    assert "the runs have no step in common: each is summed up over its own steps" in found["warnings"]
    assert [cell["count"] for cell in found["metrics"]["timing_s/gen"]] == [2, 3]
    assert found["agreement"][0]["verdict"] == "no step in common"


def test_labels_base_and_files(tmp_path, capsys):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "x.log", log(range(1, 4), pace=1 if name == "a" else 2))
    paths = [str(tmp_path / name / "x.log") for name in ("a", "b")]
    found = result(tmp_path, *paths, "--label", "NPU | [red]", "--label", "=GPU", "--base", "=GPU")
    assert found["metrics"]["timing_s/gen"][0]["ratio"] == pytest.approx(0.5, abs=0.1)
    assert "NPU | [red] against =GPU: end to end 0." in capsys.readouterr().out
    markdown = (tmp_path / "out" / "compare.md").read_text()
    assert r"NPU \| \[red\]" in markdown
    widths = {line.replace(r"\|", "").count("|") for line in markdown.splitlines() if line.startswith("| ")}
    assert len(widths) == 3  # three tables, each with as many cells in every row
    rows = list(csv.DictReader((tmp_path / "out" / "compare.csv").open()))
    assert {row["run"] for row in rows} == {"NPU | [red]", "=GPU"}
    assert (tmp_path / "out" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert [run["label"] for run in result(tmp_path, *paths)["runs"]] == paths  # alike names are told apart


def test_a_name_does_not_steer_the_terminal(tmp_path, capsys):
    path = write(tmp_path / "a.log", log(range(1, 4)))
    found = result(tmp_path, path, path, "--label", "a\x1b[31m\udcff\n", "--label", "b")
    assert found["base"] == "a?[31m??"
    assert "\x1b[31m" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["one"], "1 runs given"),
        (["one"] * 7, "7 runs given"),
        (["one", "absent"], "neither a file nor a folder"),
        (["one", "empty"], "is empty"),
        (["one", "folder"], "holds no metrics.jsonl, no train.log and no event file"),
        (["one", "one", "--label", "x"], "1 labels for 2 runs"),
        (["one", "one", "--label", "x", "--label", "x"], "the same label"),
        (["one", "one", "--label", "x\x07", "--label", "x\x08"], "the same label"),
        (["one", "one", "--base", "y"], "no run has the label y"),
        (["one", "one", "--warmup", "9"], "one #1 has 3 steps, and 9 are left out as warm-up"),
        (["one", "one", "--warmup", "-1"], "--warmup is below 0"),
    ],
)
def test_wrong_usage(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    write(Path("one"), log(range(1, 4)))
    write(Path("empty"), "")
    Path("folder").mkdir()
    assert main(["compare", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "next:" in error


def test_curves_that_must_agree(tmp_path):
    paths = [str(write(tmp_path / f"{seed}.log", log(range(1, 4), seed=seed))) for seed in (0, 1)]
    assert main(["compare", *paths]) == 0
    assert main(["compare", *paths, "--must-agree"]) == 1


def test_why_a_curve_that_nobody_logs_does_not_agree(tmp_path, capsys):
    lines = "".join(step_line(s, older(values(s))) for s in (1, 2, 3))
    run = str(write(tmp_path / "a.log", lines))
    labels = ["--label", "a", "--label", "b"]
    assert main(["compare", run, run, "--must-agree", *labels]) == 1
    assert capsys.readouterr().err == "--must-agree: minus log-prob of the actor of b: not logged by both\n"


@pytest.mark.parametrize("value", [1e308, -1e308])
def test_values_whose_sum_overflows(tmp_path, value):
    huge = "".join(step_line(s, {**dict.fromkeys(values(s), value), "timing_s/step": 2.0}) for s in (1, 2, 3, 3))
    found = result(tmp_path, write(tmp_path / "a.log", log((1, 2, 3))), write(tmp_path / "b.log", huge))
    cell = found["metrics"]["timing_s/gen"][1]
    assert (cell["median"], cell["count"], cell["bad"], cell["ratio"]) == (None, 0, 2, None)
    assert found["runs"][1]["curves"]["timing_s/gen"] == [[1, None], [2, None], [3, None]]
    assert not [warning for warning in found["warnings"] if "restarted" in warning]


def test_a_list_of_trees_in_another_encoding(tmp_path):
    write(tmp_path / "train.log", log((1, 2, 3)))
    (tmp_path / "trees.txt").write_bytes(b"verl 0.7.1   6 patches  23a6498f90d6  /caf\xe9/verl\n")
    assert read_run(tmp_path).versions == {"verl": "0.7.1 (23a6498f90d6)"}


def test_one_step_without_warmup(tmp_path):
    path = write(tmp_path / "a.log", log([1]))
    comparison = compare([read_run(path), read_run(path)], warmup=0)
    assert comparison.rows[0].spreads[0].low == comparison.rows[0].spreads[0].high
    assert result(tmp_path, path, path, "--warmup", 0)["runs"][0]["compared"] == "1-1 (1 steps)"
