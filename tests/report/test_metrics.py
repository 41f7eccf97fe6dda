"""metrics.jsonl and the summary."""

import json

import pytest

from qwen3_rl.cli import main
from qwen3_rl.report.metrics import METRICS, RAW_METRICS, read_metrics, write_metrics


def line(step: int, **data) -> str:
    return json.dumps({"step": step, "data": data})


def training(step: int, reward: float) -> str:
    data = {
        "training/global_step": step,
        "critic/rewards/mean": reward,
        "response_length/mean": 8.0 - step,
        "timing_s/step": 1.5,
    }
    return line(step, **data)


def write(folder, *lines: str) -> int:
    (folder / RAW_METRICS).write_text("\n".join(lines))
    return write_metrics(folder)


def test_one_flat_object_a_step(tmp_path):
    assert write(tmp_path, training(1, 0.5), training(2, 0.7)) == 2
    first = json.loads((tmp_path / METRICS).read_text().splitlines()[0])
    assert first["critic/rewards/mean"] == 0.5
    assert first["step"] == first["training/global_step"] == 1
    assert not (tmp_path / RAW_METRICS).exists()


def test_validation_joins_its_step(tmp_path):
    validation = line(2, **{"val/reward": 0.9})
    assert write(tmp_path, line(0, **{"val/reward": 0.1}), training(1, 0.5), training(2, 0.7), validation) == 2
    steps = read_metrics(tmp_path)
    assert [step["step"] for step in steps] == [1, 2]
    assert steps[1]["val/reward"] == 0.9
    assert len((tmp_path / METRICS).read_text().splitlines()) == 3


def test_a_step_run_again_counts_once(tmp_path):
    assert write(tmp_path, training(1, 0.5), training(2, 0.1), training(2, 0.7)) == 2
    assert read_metrics(tmp_path)[1]["critic/rewards/mean"] == 0.7


def test_a_line_cut_off_by_a_kill(tmp_path):
    assert write(tmp_path, training(1, 0.5), training(2, 0.7)[:20]) == 1


def test_no_tracking_file(tmp_path):
    assert write_metrics(tmp_path) == 0
    assert list(tmp_path.iterdir()) == []


def test_summary(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="needs build_project.sh --target cpu")
    write(tmp_path, *(training(step, step / 10) for step in range(1, 8)))
    assert main(["summary", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "mean reward 0.300 in the first 5 steps, 0.500 in the last 5; 7 steps took 10 s" in output
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_summary_of_a_step_that_is_not_finite(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="needs build_project.sh --target cpu")
    write(tmp_path, training(1, 0.5), training(2, 0.7).replace("0.7", "null"))
    assert main(["summary", str(tmp_path)]) == 0
    assert "nan" in capsys.readouterr().out


def test_summary_of_nothing(tmp_path, capsys):
    assert main(["summary", str(tmp_path)]) == 2
    assert f"holds no {METRICS}" in capsys.readouterr().err
    (tmp_path / METRICS).write_text("")
    assert main(["summary", str(tmp_path)]) == 2
    assert "holds no training step" in capsys.readouterr().err
