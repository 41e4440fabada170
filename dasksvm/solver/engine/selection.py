"""Which example is processed next (paper 1, section 4): in random order, or the best of random pools of unprocessed examples.

Random order means that the chunks are in random order, and so are the rows within each chunk. A pool is the next few
unprocessed examples of such an order; those that are not chosen are drawn again in the next pass over the data, which has
another order.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.engine.criteria import CRITERIA, RANDOM
from dasksvm.solver.kernels.features import Ints, Values
from dasksvm.solver.messages import Choice
from dasksvm.solver.state.capture import Stateful

# Autoactive sampling closes a pool with this many examples near the decision boundary (paper 1, section 4.4).
NEAR_ENOUGH = 5
FREE, DRAWN, PROCESSED = 0, 1, 2
AS_GIVEN = -1
LEAST_SCAN = 4096
# Changes that are tolerated between the choice of an example and its use: the median change of a decision value as a share of
# 1 + δ/2, the distance beyond which no example enters; the growth of S as a share of it. Last, the most examples of a batch.
TOLERATED_DRIFT, TOLERATED_GROWTH, MOST_GROUPS = 0.2, 0.2, 64


@dataclass(frozen=True)
class Selection:
    """How examples are chosen.

    Attributes
    ----------
    criterion : str
        One of `criteria.CRITERIA`.
    candidates : int
        M, the number of examples in a pool; with an adaptive criterion the largest pool has twice as many.
    exact : bool
        Whether each example is chosen with the current expansion, one at a time, instead of several per batch.
    """

    criterion: str = RANDOM
    candidates: int = 50
    exact: bool = False

    @property
    def adaptive(self) -> bool:
        """Whether a pool is closed early."""
        return CRITERIA.find(self.criterion).adaptive

    @property
    def largest_pool(self) -> int:
        """The largest pool that one example is chosen from."""
        return 2 * self.candidates if self.adaptive else self.candidates


def measure_of(name: str) -> Callable[[Values, Values], Values]:
    """Return the measure of a criterion that chooses among candidates; ValueError if it does not."""
    measure = CRITERIA.find(name).measure
    if measure is None:
        raise ValueError(f"selection criterion {name!r} does not choose among candidates.")
    return measure


class RandomOrder:
    """The order of the examples in each epoch: a function of the seed alone.

    Parameters
    ----------
    chunks : sequence of int
        Rows of each chunk of the data; one chunk for data in memory.
    seed : int
        With AS_GIVEN the examples are not shuffled.
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
        """Return the ids at the positions from `start` to `stop` of an epoch's order."""
        if epoch != self._epoch:
            self._chunk_order = self._shuffled_order(epoch, count=len(self.chunks))
            self._ends = np.cumsum(np.asarray(self.chunks, np.int64)[self._chunk_order])
            self._epoch = epoch
        parts = []
        at = int(np.searchsorted(self._ends, start, side="right"))
        while start < stop:
            end = int(self._ends[at])
            taken = min(stop, end)
            chunk = int(self._chunk_order[at])
            within = self._rows_of_chunk(epoch, chunk)
            offset = end - self.chunks[chunk]
            parts.append(self._starts[chunk] + within[start - offset : taken - offset])
            start, at = taken, at + 1
        return self.base + np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _rows_of_chunk(self, epoch: int, chunk: int) -> Ints:
        if self._shuffled_chunk != (epoch, chunk):
            self._shuffled = self._shuffled_order(epoch, chunk, count=self.chunks[chunk])
            self._shuffled_chunk = (epoch, chunk)
        return self._shuffled

    def _shuffled_order(self, *key: int, count: int) -> Ints:
        if self.seed == AS_GIVEN:
            return np.arange(count)
        return np.random.default_rng([self.seed, *key]).permutation(count)


class Pools(Stateful):
    """The examples that can still be chosen in an epoch, and the pools that they are chosen from.

    Parameters
    ----------
    order : RandomOrder
    selection : Selection
    """

    STATE = ("pass_number", "position", "free", "groups", "size", "status")

    def __init__(self, order: RandomOrder, selection: Selection) -> None:
        self.order = order
        self.selection = selection
        self.pass_number = self.position = self.free = 0
        self.status: NDArray[np.uint8] = np.zeros(len(order), np.uint8)
        # Number of examples to choose per batch; number of candidates per choice with a criterion that closes pools early.
        self.groups, self.size = 1.0, float(NEAR_ENOUGH)

    def begin(self, excluded: Ints) -> None:
        """Begin an epoch, in which every example can be chosen except those in `excluded`."""
        self.status[:] = FREE
        self.status[excluded[excluded >= self.order.base] - self.order.base] = PROCESSED
        self.free = int(np.count_nonzero(self.status == FREE))

    def draw_candidates(self, left: int) -> tuple[Ints, Choice]:
        """Draw the candidates of the next batch, of which at most `left` are to be chosen."""
        selection, adaptive = self.selection, self.selection.adaptive
        groups = min(1 if selection.exact else int(self.groups), left)
        # There are candidates for at least one pool of the largest size, so that one example can be chosen in any case.
        largest = selection.largest_pool
        needed = max(groups * min(self.size, largest), largest if groups else 0) if adaptive else groups * largest
        rows = self.draw(int(np.ceil(needed)))
        return rows, Choice(selection.criterion, largest, groups if adaptive else -(-len(rows) // largest))

    def draw(self, count: int) -> Ints:
        """Draw the next `count` examples that are neither processed nor drawn, or as many as there are left."""
        found: list[Ints] = []
        missing = min(count, self.free)
        self.free -= missing
        while missing:
            if self.position == len(self.order):
                self.pass_number, self.position = self.pass_number + 1, 0
            stop = min(self.position + max(missing, LEAST_SCAN), len(self.order))
            rows = self.order.rows(self.pass_number, self.position, stop)
            fresh = np.flatnonzero(self.status[rows - self.order.base] == FREE)[:missing]
            self.position = self.position + int(fresh[-1]) + 1 if len(fresh) == missing else stop
            found.append(rows[fresh])
            self.status[found[-1] - self.order.base] = DRAWN
            missing -= len(fresh)
        return np.concatenate([np.zeros(0, np.int64), *found])

    def exclude(self, rows: Ints) -> None:
        """Exclude examples for the rest of this epoch; they may or may not be drawn at the moment."""
        at = rows - self.order.base
        self.free -= int(np.count_nonzero(self.status[at] == FREE))
        self.status[at] = PROCESSED

    def put_back(self, drawn: Ints, chosen: Ints, sampled: int) -> None:
        """Put back the examples that were drawn and not chosen.

        Parameters
        ----------
        drawn, chosen : ndarray of int64
        sampled : int
            Number of candidates that they were chosen from.
        """
        self.status[drawn - self.order.base] = FREE
        self.status[chosen - self.order.base] = PROCESSED
        self.free += len(drawn) - len(chosen)
        self.size = sampled / len(chosen)

    def adapt_batch_size(self, moved: NDArray[np.float64], members: int, room: float, lookahead: int) -> None:
        """Adapt the size of the next batches to how much the expansion changes between the choice of an example and its use.

        Parameters
        ----------
        moved : ndarray of float64
            Changes of the decision values of the last examples between choice and use, as shares of 1 + δ/2.
        members : int
            Size of S; the number of examples in flight stays small compared with it.
        room : float
            Number of candidates that all batches in flight together may hold.
        lookahead : int
            Number of batches in flight.
        """
        most = min(TOLERATED_GROWTH * members / lookahead, room / ((lookahead + 1) * self.selection.largest_pool))
        if len(moved):
            change = TOLERATED_DRIFT / max(float(np.median(np.abs(moved))), 1e-9)
            self.groups = self.groups * float(np.clip(change, 0.5, 2.0))
        self.groups = max(min(self.groups, most, MOST_GROUPS), 1.0)
