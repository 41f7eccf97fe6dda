"""The one exception for faults that a user can mend."""


class UserError(Exception):
    """A foreseeable fault: what is wrong (with the value) and the next step to take. Shown without a traceback."""

    def __init__(self, what: str, next_step: str, exit_code: int = 2):
        super().__init__(what)
        self.what = what
        self.next_step = next_step
        self.exit_code = exit_code

    def render(self) -> str:
        return f"error: {self.what}\n next: {self.next_step}"
