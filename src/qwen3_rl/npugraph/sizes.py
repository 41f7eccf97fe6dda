"""For which batch sizes graphs are captured, and what they hold."""

from collections.abc import Iterator
from dataclasses import dataclass


def request_counts(largest: int) -> list[int]:
    """Batch sizes up to ``largest``, which is the last: 1, 2, 4, 8, then two to an octave (12, 16, 24, 32, 48, ...).

    So a batch of more than 8 requests is padded by less than a half of its size, and 256 requests need 14 graphs.
    """
    return sorted({count for count in _octaves() if count < largest} | {largest})


def _octaves() -> Iterator[int]:
    yield from (1, 2, 4)
    for power in range(3, 17):
        yield 1 << power
        yield 3 << (power - 1)


def capture_sizes(max_num_seqs: int, k: int = 0, draft_limit: int | None = None, one_token: bool = False) -> list[int]:
    """Tokens of the batches that graphs are captured for: multiples of k + 1, in rising order.

    max_num_seqs: requests at once. k: draft tokens of a request, 0 without speculation. draft_limit: larger batches are
    not drafted for (None: any is), which means nothing without drafts. one_token: batches in which every request has
    one token replay graphs as well; such a graph holds as many requests as tokens, so it may have no more tokens than
    max_num_seqs.
    """
    width = k + 1
    drafting = min(draft_limit, max_num_seqs) if k and draft_limit is not None else max_num_seqs
    sizes = {width * count for count in request_counts(drafting)} if drafting else set()
    if k and one_token:
        fitting = max_num_seqs // width * width
        sizes |= {min(-(-count // width) * width, fitting) for count in request_counts(max_num_seqs) if fitting}
    return sorted(sizes)


def one_token_sizes(sizes: list[int], max_num_seqs: int) -> list[int]:
    """Those of ``sizes`` that also have a graph of one token a request."""
    return [size for size in sizes if size <= max_num_seqs]


@dataclass(frozen=True)
class GraphCost:
    """graphs: how many are captured. tasks: attention calls in all of them, each with an event and a handle of its own
    that every replay updates. pool_bytes: activations of the largest graph, which the others share; a lower bound of
    the memory, as workspaces and what the driver keeps for a graph are known on an NPU only."""

    graphs: int
    tasks: int
    pool_bytes: int


def graph_cost(
    sizes: list[int], one_token: list[int], layers: int, hidden: int, intermediate: int, width: int = 2
) -> GraphCost:
    """What graphs of these sizes hold on one die.

    hidden, intermediate: the die's share of a layer's widest tensors, in elements. width: bytes of an element. Alive
    at once are the residual stream, a layer's input and gate and up projections.
    """
    graphs = len(sizes) + len(one_token)
    largest = max(sizes, default=0)
    return GraphCost(graphs, graphs * layers, largest * (2 * hidden + 2 * intermediate) * width)
