"""Which example comes next. Random order: chunks in random order, and the rows of each chunk in random order."""

import numpy as np

from dasksvm.solver.features import Ints


class RandomOrder:
    """The order of the examples in each epoch: a function of the seed alone.

    Parameters
    ----------
    chunks : sequence of int
        Rows of each chunk of the data; one chunk for data in memory.
    seed : int
    base : int
        Id of the first example.
    """

    def __init__(self, chunks: tuple[int, ...], seed: int, base: int = 0) -> None:
        self.chunks = chunks
        self.seed = seed
        self.base = base
        self._starts = np.concatenate([[0], np.cumsum(chunks)]).astype(np.int64)
        self._epoch = -1
        self._shuffled_chunk = (-1, -1)
        self._shuffled: Ints = np.zeros(0, np.int64)
        self._chunk_order = np.zeros(0, np.int64)
        self._ends = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def rows(self, epoch: int, start: int, stop: int) -> Ints:
        """Give the ids at some positions of an epoch's order."""
        if epoch != self._epoch:
            self._chunk_order = np.random.default_rng([self.seed, epoch]).permutation(len(self.chunks))
            self._ends = np.cumsum(np.asarray(self.chunks, np.int64)[self._chunk_order])
            self._epoch = epoch
        parts = []
        at = int(np.searchsorted(self._ends, start, side="right"))
        while start < stop:
            end = int(self._ends[at])
            taken = min(stop, end)
            chunk = int(self._chunk_order[at])
            within = self._within(epoch, chunk)
            offset = end - self.chunks[chunk]
            parts.append(self._starts[chunk] + within[start - offset : taken - offset])
            start, at = taken, at + 1
        return self.base + np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _within(self, epoch: int, chunk: int) -> Ints:
        if self._shuffled_chunk != (epoch, chunk):
            self._shuffled = np.random.default_rng([self.seed, epoch, chunk]).permutation(self.chunks[chunk])
            self._shuffled_chunk = (epoch, chunk)
        return self._shuffled
