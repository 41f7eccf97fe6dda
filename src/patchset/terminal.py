"""Where tables and progress are printed."""

from rich.console import Console


class Terminal(Console):
    """rich's Console, which leaves it to the command what a closed pipe (`| head`) means; rich itself exits with 1."""

    def on_broken_pipe(self) -> None:
        raise  # what is being handled: the BrokenPipeError
