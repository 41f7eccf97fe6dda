"""`Gate`: how many tokens each request may draft."""


class Gate:
    """k: most draft tokens. batch_limit: no drafts in batches above it (-1: any batch). adaptive: unused."""

    def __init__(self, k: int, batch_limit: int, adaptive: bool):
        self._k = k
        self._batch_limit = batch_limit

    def draft_tokens(self, batch: int) -> int:
        return self._k if self._batch_limit < 0 or batch <= self._batch_limit else 0

    def observe(self, batch: int, drafted: int, accepted: int, seconds: float) -> None:
        pass

    def state(self) -> dict:
        return {}
