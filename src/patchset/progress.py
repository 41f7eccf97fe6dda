"""One line a framework while it is fetched: a live one on a terminal, plain lines elsewhere."""

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Lines:
    """Use as a context manager; `say` and `advance` may be called from any thread."""

    def __init__(self, names: list[str], console: Console) -> None:
        self._console = console
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[name]}"),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks = {name: self._bars.add_task("waits", total=None, name=name) for name in names}

    def __enter__(self) -> "Lines":
        self._bars.start()
        return self

    def __exit__(self, *_) -> None:
        self._bars.stop()

    def say(self, name: str, text: str, done: bool = False) -> None:
        """A step worth a line of its own in a log."""
        if self._console.is_terminal:
            ended = {"total": 1, "completed": 1} if done else {}
            self._bars.update(self._tasks[name], description=text, **ended)
        else:
            self._console.print(f"{name}: {text}", markup=False, highlight=False, soft_wrap=True)

    def advance(self, name: str, text: str) -> None:
        """A step that only a live line shows."""
        self._bars.update(self._tasks[name], description=text)
