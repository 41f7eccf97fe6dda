"""`Batches`: a data loader whose running epoch can be asked for more batches than the training loop takes."""

from typing import Any


class Batches:
    """Iterates over ``loader`` like the loader itself; everything else is the loader's own (length, sampler, state).

    `more()` takes a batch out of the epoch under way. At that epoch's end it begins the next one; the loop then ends
    its epoch and goes on with that one, so that no batch is left out and epochs are counted as they are used.
    """

    def __init__(self, loader: Any):
        self.loader = loader
        self._epoch = None
        self._ahead = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> "Batches":
        if not self._ahead:
            self._epoch = iter(self.loader)
        self._ahead = False
        return self

    def __next__(self) -> dict:
        if self._ahead:
            raise StopIteration
        return next(self._epoch)

    def more(self) -> dict:
        try:
            return next(self._epoch)
        except StopIteration:
            self._epoch = iter(self.loader)
            self._ahead = True
            return next(self._epoch)
