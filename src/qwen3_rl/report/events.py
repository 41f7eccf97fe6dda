"""TensorBoard event files, read with tensorboard's own reader (no TensorFlow needed)."""

from pathlib import Path

from qwen3_rl.errors import UserError
from qwen3_rl.report.steps import KeptSteps

PATTERN = "*.tfevents.*"
RECORD_FRAME = 16  # bytes around each record: its length and two checksums


def event_files(folder: Path) -> list[Path]:
    """The event files of one run, oldest first. Raises UserError if they lie in several folders."""
    files = sorted(folder.rglob(PATTERN), key=lambda path: path.name)  # the name holds the time
    folders = sorted({str(file.parent) for file in files})
    if len(folders) > 1:
        raise UserError(
            f"{folder} holds the events of {len(folders)} runs", f"name one of them: {', '.join(folders[:6])}"
        )
    return files


def read_events(files: list[Path]) -> tuple[KeptSteps, list[str]]:
    """The scalars of the files as steps, and notes. What is still being written is read as far as it is whole."""
    try:
        from google.protobuf.message import DecodeError
        from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
        from tensorboard.compat.proto.event_pb2 import Event
    except ImportError as error:
        raise UserError(
            f"reading TensorBoard events needs tensorboard ({error})", "pip install 'qwen3-rl[tensorboard]'"
        ) from error
    steps, notes = KeptSteps(), []
    for file in files:
        read, group = 0, (None, {})
        try:
            for record in RawEventFileLoader(str(file)).Load():
                read += len(record) + RECORD_FRAME
                event = Event.FromString(record)
                for value in event.summary.value:
                    # One event a metric: those of a step stand together.
                    if event.step != group[0] or value.tag in group[1]:
                        _add(steps, *group)
                        group = (event.step, {})
                    group[1][value.tag] = _scalar(value)
        except DecodeError:
            notes.append(f"{file.name} holds a record that is no event; what follows it was not read")
        _add(steps, *group)
        if unread := file.stat().st_size - read:
            notes.append(f"the last {unread} bytes of {file.name} were not read: still being written, or damaged")
    if steps.restarts:
        notes.append(f"restarted {steps.restarts} times; steps that ran again count once, the last time")
    return steps, notes


def _scalar(value) -> float | None:
    if value.HasField("simple_value"):
        return value.simple_value
    if value.HasField("tensor") and len(value.tensor.float_val) == 1:
        return value.tensor.float_val[0]
    return None


def _add(steps: KeptSteps, step: int | None, values: dict[str, float | None]) -> None:
    scalars = {tag: value for tag, value in values.items() if value is not None}
    if scalars:
        steps.add(step, scalars)
