"""How texts become batches: cut by length into batches of few sizes, the next ones made meanwhile."""

import concurrent.futures
from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np

WINDOW = 8192  # texts that are sorted together

BATCH_TOKENS = 1024  # products of more rows are hardly faster, and their activations leave the cache
_BATCH_OVERHEAD = 64  # what another batch costs, in tokens
# Few sizes, since oneDNN keeps memory for every shape that it has met.
_BATCH_SIZES = np.array(sorted(factor * 2**power for factor in (1, 3) for power in range(10)))

Item = TypeVar("Item")


def plan_batches(lengths: np.ndarray, *, max_tokens: int) -> list[slice]:
    """Cuts texts of falling `lengths` into batches, so that padding and the number of batches cost least together.

    A batch holds one text, or as many as one of `_BATCH_SIZES` with at most `max_tokens` tokens, padding included.
    """
    count = len(lengths)
    best = np.zeros(count + 1)  # the least cost of the texts before each place
    begin = np.zeros(count + 1, int)  # where the last batch of that plan begins
    for end in range(1, count + 1):
        starts = end - _BATCH_SIZES[end >= _BATCH_SIZES]
        tokens = (end - starts) * lengths[starts]
        allowed = (tokens <= max_tokens) | (starts == end - 1)
        costs = np.where(allowed, best[starts] + tokens + _BATCH_OVERHEAD, np.inf)
        best[end], begin[end] = costs.min(), starts[costs.argmin()]
    batches = []
    while count:
        batches.append(slice(int(begin[count]), count))
        count = int(begin[count])
    return batches[::-1]


def read_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """Yields `items`, of which the next one is made in a thread while the present one is used."""
    end = object()
    iterator = iter(items)
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as executor:
        coming = executor.submit(next, iterator, end)
        while (item := coming.result()) is not end:
            coming = executor.submit(next, iterator, end)
            yield item  # type: ignore[misc]  # `end` never gets here
