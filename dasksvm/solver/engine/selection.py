"""Which example comes next (paper 1, section 4): in random order, or the best of random pools of unprocessed examples.

Random order means chunks in random order, and the rows of each chunk in random order. A pool is the next few unprocessed
examples of such an order; those of them that are not chosen come again in the next turn, in another order.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.engine.criteria import CRITERIA
from dasksvm.solver.engine.criteria import RANDOM as RANDOM  # the learner imports it from here
from dasksvm.solver.engine.criterion import Values
from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.messages import Choice
from dasksvm.solver.state.capture import Stateful

# Autoactive sampling ends with so many examples near the boundary (paper 1, section 4.4).
NEAR_ENOUGH = 5
FREE, DRAWN, PROCESSED = 0, 1, 2
AS_GIVEN = -1
LEAST_SCAN = 4096
# What may change between choice and use: a decision value, typically, as a share of the distance 1 + δ/2 from which on nothing
# enters; the number of members, as a share of them. And the most examples that a batch may choose.
TOLERATED_DRIFT, TOLERATED_GROWTH, MOST_GROUPS = 0.2, 0.2, 64


@dataclass(frozen=True)
class Selection:
    """How examples are chosen.

    Attributes
    ----------
    criterion : str
        One of `criteria.CRITERIA`.
    candidates : int
        M, the examples of a pool; autoactive sampling ends with twice as many at the latest.
    exact : bool
        Whether each choice is made against the present expansion, one example at a time.
    """

    criterion: str = RANDOM
    candidates: int = 50
    exact: bool = False

    @property
    def adaptive(self) -> bool:
        """Whether a pool ends early."""
        return CRITERIA.find(self.criterion).adaptive

    @property
    def most(self) -> int:
        """The largest pool that one example is chosen from."""
        return 2 * self.candidates if self.adaptive else self.candidates


def measure_of(name: str) -> Callable[[Values, Values], Values]:
    """Give what a criterion that chooses among candidates compares them by."""
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
        With AS_GIVEN the examples come as they are.
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
            self._chunk_order = self._shuffled_order(epoch, count=len(self.chunks))
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
            self._shuffled = self._shuffled_order(epoch, chunk, count=self.chunks[chunk])
            self._shuffled_chunk = (epoch, chunk)
        return self._shuffled

    def _shuffled_order(self, *key: int, count: int) -> Ints:
        if self.seed == AS_GIVEN:
            return np.arange(count)
        return np.random.default_rng([self.seed, *key]).permutation(count)


class Pools(Stateful):
    """The examples of an epoch that can still be chosen, and the pools that they are chosen from.

    Parameters
    ----------
    order : RandomOrder
    how : Selection
    """

    STATE = ("turn", "position", "free", "groups", "size", "mark")

    def __init__(self, order: RandomOrder, how: Selection) -> None:
        self.order = order
        self.how = how
        self.turn = self.position = self.free = 0
        self.mark: NDArray[np.uint8] = np.zeros(len(order), np.uint8)
        # Examples that a batch chooses; candidates that a choice takes, where that is not fixed.
        self.groups, self.size = 1.0, float(NEAR_ENOUGH)

    def begin(self, out: Ints) -> None:
        """Begin an epoch: every example can be chosen, but those that are out."""
        self.mark[:] = FREE
        self.mark[out[out >= self.order.base] - self.order.base] = PROCESSED
        self.free = int(np.count_nonzero(self.mark == FREE))

    def ask(self, left: int) -> tuple[Ints, Choice]:
        """Draw the candidates of a batch, from which at most `left` examples are chosen."""
        how, adaptive = self.how, self.how.adaptive
        groups = min(1 if how.exact else int(self.groups), left)
        # At least one choice is whole: more candidates than it may take are never needed.
        wanted = max(groups * min(self.size, how.most), how.most if groups else 0) if adaptive else groups * how.most
        rows = self.draw(int(np.ceil(wanted)))
        return rows, Choice(how.criterion, how.most, groups if adaptive else -(-len(rows) // how.most))

    def draw(self, count: int) -> Ints:
        """Take the next few unprocessed examples that nobody has drawn; fewer, or none, when there are no more."""
        found: list[Ints] = []
        wanted = min(count, self.free)
        self.free -= wanted
        while wanted:
            if self.position == len(self.order):
                self.turn, self.position = self.turn + 1, 0
            stop = min(self.position + max(wanted, LEAST_SCAN), len(self.order))
            rows = self.order.rows(self.turn, self.position, stop)
            fresh = np.flatnonzero(self.mark[rows - self.order.base] == FREE)[:wanted]
            self.position = self.position + int(fresh[-1]) + 1 if len(fresh) == wanted else stop
            found.append(rows[fresh])
            self.mark[found[-1] - self.order.base] = DRAWN
            wanted -= len(fresh)
        return np.concatenate([np.zeros(0, np.int64), *found])

    def take_out(self, rows: Ints) -> None:
        """Let some rows not be drawn in this epoch, whether they were or not."""
        at = rows - self.order.base
        self.free -= int(np.count_nonzero(self.mark[at] == FREE))
        self.mark[at] = PROCESSED

    def settle(self, drawn: Ints, chosen: Ints, sampled: int) -> None:
        """Put back what was drawn and not chosen.

        Parameters
        ----------
        drawn, chosen : ndarray of int64
        sampled : int
            Candidates among which they were chosen.
        """
        self.mark[drawn - self.order.base] = FREE
        self.mark[chosen - self.order.base] = PROCESSED
        self.free += len(drawn) - len(chosen)
        self.size = sampled / len(chosen)

    def pace(self, moved: NDArray[np.float64], members: int, room: float, lookahead: int) -> None:
        """Fit the size of the next batches to what the expansion changes between choice and use.

        Parameters
        ----------
        moved : ndarray of float64
            What the decision values of the last examples changed meanwhile, as shares of 1 + δ/2.
        members : int
            A batch chooses few examples against them.
        room : float
            Candidates that batches in flight may hold.
        lookahead : int
            Batches in flight.
        """
        most = min(TOLERATED_GROWTH * members / lookahead, room / ((lookahead + 1) * self.how.most))
        if len(moved):
            change = TOLERATED_DRIFT / max(float(np.median(np.abs(moved))), 1e-9)
            self.groups = self.groups * float(np.clip(change, 0.5, 2.0))
        self.groups = max(min(self.groups, most, MOST_GROUPS), 1.0)
