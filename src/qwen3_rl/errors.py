"""The one exception for faults that a user can mend, and how every command shows them."""

import contextlib
from collections.abc import Iterator

from patchset.errors import PatchsetError, system_hint


class UserError(Exception):
    """A foreseeable fault: what is wrong (with the value) and the next step to take. Shown without a traceback, but in
    the trainer, where it is part of Ray's."""

    def __init__(self, what: str, next_step: str, exit_code: int = 2):
        super().__init__(what, next_step, exit_code)  # all of them: pickle, and so Ray, makes it anew from these
        self.what = what
        self.next_step = next_step
        self.exit_code = exit_code

    def __str__(self) -> str:
        """In one line, as where somebody else shows it."""
        return f"{self.what} (next: {self.next_step})"

    def render(self) -> str:
        return f"error: {self.what}\n next: {self.next_step}"


@contextlib.contextmanager
def as_user_errors() -> Iterator[None]:
    """Turn what patchset and the system report into UserError."""
    try:
        yield
    except PatchsetError as error:
        raise UserError(error.what, error.next_step) from error
    except BrokenPipeError:  # whoever read has enough: no fault
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise UserError(f"{where}{error.strerror}", system_hint(error)) from error
