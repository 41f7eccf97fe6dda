"""Reading veRL's console log, whatever stands around and inside its step lines."""

import gzip
import math
import tracemalloc

import pytest

from qwen3_rl.errors import UserError
from qwen3_rl.report import console as module
from qwen3_rl.report.console import Console, number
from qwen3_rl.report.sources import read_run
from tests.report.run_logs import WORKER, log, settings, step_line, values


def read(tmp_path, text, name="run.log"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_run(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5", 0.5),
        ("-1.5e-07", -1.5e-07),
        ("3", 3),
        ("np.float64(0.5)", 0.5),
        ("np.float32(-2e-3)", -0.002),
        ("np.int64(7)", 7),
        ("tensor(0.5, device='npu:0')", 0.5),
        ("True", 1),
        ("inf", math.inf),
        ("np.float64(-inf)", -math.inf),
    ],
)
def test_forms_of_a_number(text, value):
    assert number(text.encode()) == value


@pytest.mark.parametrize("text", ["", "0.5(WorkerDict pid=3)", "np.float64(0.5", "[1, 2]", "None", "'text'"])
def test_no_number(text):
    assert number(text.encode()) is None


def test_nan_is_kept():
    assert math.isnan(number(b"nan"))
    assert math.isnan(number(b"np.float64(nan)"))


@pytest.mark.parametrize("wrap", ["{!r}", "np.float64({!r})"])
def test_every_kept_value_of_every_step(tmp_path, wrap):
    run = read(tmp_path, log(range(1, 6), wrap=wrap))
    assert run.steps.training() == [1, 2, 3, 4, 5]
    for name in values(1):
        assert run.steps.series(name) == {step: values(step)[name] for step in range(1, 6)}, name
    assert run.notes == []


def test_gzip_crlf_progress_bars_and_an_address(tmp_path):
    text = log(range(1, 4), ip=", ip=10.0.0.1").replace(" step:2 - ", " Progress: 3%|▎| 1/30\rstep:2 - ")
    packed = gzip.compress(text.replace("\n", "\r\n").encode())
    assert read(tmp_path, packed, "run.log.gz").steps.series("timing_s/gen") == {
        step: values(step)["timing_s/gen"] for step in (1, 2, 3)
    }


def test_settings_and_versions(tmp_path):
    trees = "verl 0.7.1               6 patches  23a6498f90d6  /home/user/frameworks/verl/verl\n"
    run = read(tmp_path, trees + "Initializing a V1 LLM engine (v0.13.0) with config\n" + log([1]))
    assert run.settings["data.train_batch_size"] == 32
    assert run.settings["actor_rollout_ref.model.path"] == "/models/Qwen3-4B"
    assert run.versions == {"verl": "0.7.1 (23a6498f90d6)", "vllm": "0.13.0"}


def test_settings_among_the_lines_of_other_workers(tmp_path):
    head = "".join(line + WORKER for line in settings().splitlines(keepends=True))
    run = read(tmp_path, head + step_line(1, values(1)))
    assert run.settings["actor_rollout_ref.rollout.n"] == 8


@pytest.mark.parametrize("broken", ["},", "'rollout': ", "'/models/Qwen3", "'n"])
def test_settings_whose_lines_ray_broke(tmp_path, broken):
    """Ray ends a line where its worker flushed, and begins the next with the worker's name."""
    text = settings()
    assert broken in text
    at = text.index(broken) + len(broken) - 1
    run = read(tmp_path, text[:at] + "\n(TaskRunner pid=11) " + text[at:] + step_line(1, values(1)))
    assert run.settings == read(tmp_path, text + step_line(1, values(1))).settings != {}


WARNING = """\
/opt/verl/main_ppo.py:305: UserWarning: Disabled critic, since it isn't wanted
  use_critic=need_critic(config),
{"level": "warning"}
"""


@pytest.mark.parametrize("at", ["},", "'rollout': ", "'n': ", "'/models/Qwen3", "[1,"])
@pytest.mark.parametrize("order", ["warning, rest", "rest, warning"])
def test_settings_among_the_warnings_of_their_own_process(tmp_path, at, order):
    """Ray's driver prints what has come of stdout and of stderr in turn (seen: Ray 2.49 on a busy machine)."""
    text = settings().replace("'n': 8", "'n': 8,\n(TaskRunner pid=11)   'k': [1,\n(TaskRunner pid=11)         2]")
    first, end, rest = text.partition(at)
    line, _, others = rest.partition("\n")
    pieces = [piece.replace("\n", "\n(TaskRunner pid=11) ") for piece in (WARNING.rstrip("\n"), line) if piece]
    if order == "rest, warning":
        pieces.reverse()
    torn = "".join([first, end, *(f"\n(TaskRunner pid=11) {piece}" for piece in pieces), "\n", others])
    whole = read(tmp_path, text + step_line(1, values(1))).settings
    assert whole["actor_rollout_ref.rollout.k"] == [1, 2]
    assert read(tmp_path, torn + step_line(1, values(1))).settings == whole


def test_settings_that_another_worker_wrote_into(tmp_path):
    torn = settings().replace("'n': 8", "'n': (WorkerDict pid=3) hello")
    assert read(tmp_path, torn + step_line(1, values(1))).settings == {}


def test_validation_joins_its_step(tmp_path):
    extra = step_line(0, {"val-core/reward": 0.1}) + step_line(1, values(1)) + step_line(1, {"actor/kl_loss": 0.25})
    run = read(tmp_path, extra)
    assert run.steps.training() == [1]
    assert run.steps.series("actor/kl_loss") == {1: 0.25}


def test_a_restart_replaces_what_ran_again_and_what_came_after(tmp_path):
    first, second = log(range(1, 9)), log(range(5, 7), seed=1, pid=12)
    run = read(tmp_path, first + second)
    assert run.steps.training() == [1, 2, 3, 4, 5, 6]
    rewards = run.steps.series("critic/rewards/mean")
    assert rewards[4] == values(4)["critic/rewards/mean"]
    assert rewards[5] == values(5, seed=1)["critic/rewards/mean"]
    assert "restarted 1 times" in run.notes[0]


def test_a_line_that_comes_twice_is_no_restart(tmp_path):
    line = step_line(1, values(1) | {"actor/grad_norm": math.nan})
    assert read(tmp_path, line + line + step_line(2, values(2))).notes == []


def test_two_runs_in_one_file(tmp_path):
    lines = [step_line(step, values(step, seed=pid), pid=pid) for step in (1, 2) for pid in (11, 12)]
    with pytest.raises(UserError) as error:
        read(tmp_path, "".join(lines))
    assert "interleaved" in error.value.what
    assert "pid=11" in error.value.what


def test_a_pair_that_another_worker_wrote_into_is_left_out(tmp_path):
    torn = step_line(1, values(1)).replace(" - actor/entropy:", "(WorkerDict pid=3) oh - actor/entropy:9(Worker) - x:")
    steps = read(tmp_path, torn).steps
    assert not steps.has("actor/entropy")
    assert steps.series("timing_s/step") == {1: values(1)["timing_s/step"]}


def test_a_log_cut_in_mid_line(tmp_path):
    text = log(range(1, 4))
    run = read(tmp_path, text[: text.rindex("timing_s/update_actor") + 25])
    assert run.steps.training() == [1, 2]
    assert "the last line was cut off" in run.notes[0]


def test_a_gzip_cut_off(tmp_path):
    run = read(tmp_path, gzip.compress(log(range(1, 400)).encode(), compresslevel=1)[:-2000], "run.log.gz")
    assert run.steps.training()[:3] == [1, 2, 3]
    assert "breaks off" in run.notes[0]


def test_nan_and_infinity(tmp_path):
    odd = values(1) | {"actor/grad_norm": math.nan, "actor/pg_loss": math.inf}
    steps = read(tmp_path, step_line(1, odd)).steps
    assert math.isnan(steps.series("actor/grad_norm")[1])
    assert steps.series("actor/pg_loss")[1] == math.inf


def test_step_in_other_text_is_no_step(tmp_path):
    text = "(W pid=1) global_step:9 - timing_s/step:1.0\nlast step:8 - done\n" + step_line(1, values(1))
    assert read(tmp_path, text).steps.training() == [1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\x1f\x8b junk", "damaged"),
        (bytes(range(256)) * 100, "binary"),
        (b"hello\n", "no training step"),
    ],
)
def test_no_log_at_all(tmp_path, content, said):
    with pytest.raises(UserError) as error:
        read(tmp_path, content)
    assert said in error.value.what


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
def test_blocks_of_any_size_read_alike(size):
    text = log(range(1, 4)).encode()
    console = Console()
    for start in range(0, len(text), size):
        console.feed(text[start : start + size])
    assert console.steps.series("perf/throughput") == {s: values(s)["perf/throughput"] for s in (1, 2, 3)}
    assert console.settings["data.train_batch_size"] == 32
    assert console.total == 3


def test_a_huge_line_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_LINE", 100_000)
    huge = b"x" * 3_000_000 + b" step:7 - timing_s/step:1.0\n"
    run = read(tmp_path, step_line(1, values(1)).encode() + huge + step_line(2, values(2)).encode())
    assert run.steps.training() == [1, 2]
    assert run.notes == ["1 lines of more than 0 MiB were left out"]


def test_memory_does_not_grow_with_the_log(tmp_path, monkeypatch):
    """24 MB of talk around few steps, then 60 MB in one line (packed, as a log can hide it)."""
    path = tmp_path / "run.log.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for step in range(1, 25):
            file.write((WORKER * 9000 + step_line(step, values(step))).encode())
        for _ in range(60):
            file.write(b"x" * 1_000_000)
    monkeypatch.setattr(module, "SETTINGS_WITHIN", 1 << 20)
    tracemalloc.start()
    try:
        assert len(read_run(path).steps.training()) == 24
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
