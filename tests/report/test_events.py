"""TensorBoard folders, written by the writer that veRL uses."""

import sys

import pytest

from qwen3_rl.errors import UserError
from qwen3_rl.report.sources import read_run
from tests.report.run_logs import values

pytest.importorskip("tensorboard", reason="needs build_project.sh --target cpu")
tensorboard = pytest.importorskip("torch.utils.tensorboard", reason="needs build_project.sh --target cpu")


def write(folder, steps, seed: int = 0, suffix: str = ""):
    """As veRL's TensorBoard adapter does: one scalar event a metric. Returns the file."""
    before = set(folder.glob("*"))
    writer = tensorboard.SummaryWriter(str(folder), filename_suffix=suffix)
    for step in steps:
        for name, value in values(step, seed=seed).items():
            writer.add_scalar(name, value, step)
    writer.close()
    (made,) = set(folder.glob("*")) - before
    return made


def test_scalars_as_steps(tmp_path):
    file = write(tmp_path, range(1, 5))
    for path in (tmp_path, file):
        run = read_run(path)
        assert run.notes == []
        for name in values(1):
            expected = {step: pytest.approx(values(step)[name], rel=1e-6) for step in range(1, 5)}  # float32
            assert run.steps.series(name) == expected


def test_a_file_that_is_still_being_written(tmp_path):
    file = write(tmp_path, range(1, 5))
    whole = file.read_bytes()
    file.write_bytes(whole[:-30])
    run = read_run(tmp_path)
    assert run.steps.training() == [1, 2, 3, 4]
    assert run.steps.series("timing_s/gen")[4] == pytest.approx(values(4)["timing_s/gen"])
    assert f"bytes of {file.name} were not read: still being written, or damaged" in run.notes[0]


def test_a_damaged_record_ends_the_reading(tmp_path):
    file = write(tmp_path, range(1, 5))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)
    run = read_run(tmp_path)
    assert run.steps.training()[:2] == [1, 2]
    assert "not read" in run.notes[0]


def test_a_restart_writes_a_second_file(tmp_path):
    write(tmp_path, range(1, 6), suffix=".1")
    write(tmp_path, range(4, 6), seed=1, suffix=".2")
    run = read_run(tmp_path)
    assert run.steps.training() == [1, 2, 3, 4, 5]
    assert run.steps.series("actor/entropy")[4] == pytest.approx(values(4, seed=1)["actor/entropy"])
    assert "restarted 1 times" in run.notes[0]


def test_several_runs_below_one_folder(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, [1])
    with pytest.raises(UserError, match="holds the events of 2 runs"):
        read_run(tmp_path)


def test_no_event_file_at_all(tmp_path):
    (tmp_path / "events.out.tfevents.1.x").write_bytes(b"hello" * 100)
    with pytest.raises(UserError, match="no training step"):
        read_run(tmp_path)


def test_without_tensorboard(tmp_path, monkeypatch):
    write(tmp_path, [1])
    monkeypatch.setitem(sys.modules, "tensorboard.backend.event_processing.event_file_loader", None)
    with pytest.raises(UserError) as error:
        read_run(tmp_path)
    assert error.value.next_step == "pip install 'qwen3-rl[tensorboard]'"
