"""The interface of finishers, which solve the problem restricted to the expansion; the batch solvers implement it too."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self

import numpy as np

from dasksvm.solver.kernels.features import Floats, Ints, Values
from dasksvm.solver.state.capture import State
from dasksvm.solver.state.expansion import Expansion


class Outcome(NamedTuple):
    """The result of finishing: coefficients (P, V), the extremes that enclose the biases (P, 2), violations and duals (P,)."""

    coefficients: Values
    extremes: Values
    delta: Values
    dual: Values

    @classmethod
    def of_problem(cls, alpha: Values, extremes: tuple[float, float], delta: float, dual: float) -> Self:
        """Return the outcome of one problem with coefficients of shape (V,)."""
        return cls(alpha[None], np.array([extremes]), np.array([delta]), np.array([dual]))


class Finisher(Protocol):
    """The steps of one problem, on copies of its coefficients and gradients.

    It works in rounds. As long as `choose` returns True, a round follows: `missing` lists the members whose kernel rows have to
    be computed, `put` receives these rows, and `solve` makes the steps. `state` returns its whole state; it may be called between
    two rounds, and between `missing` and `put`.
    """

    @property
    def problem(self) -> int:
        """Number of the problem; of several that are solved together, the last one."""

    @property
    def steps(self) -> int:
        """Steps made so far."""

    @property
    def alpha(self) -> Values:
        """Coefficients, or dual variables, of all places: shape (V,), or (d, V) for a machine."""

    def choose(self, expansion: Expansion) -> bool:
        """Choose what the next round works on; return False if the problem is solved or no more gain is possible."""

    def order(self, expansion: Expansion) -> Ints:
        """Return the slots of the places that the columns of kernel rows refer to."""

    def missing(self, expansion: Expansion) -> Ints:
        """Return the slots of the members whose kernel rows the round needs but are not cached."""

    def put(self, expansion: Expansion, rows: Floats) -> None:
        """Cache the rows that `missing` listed."""

    def solve(self, expansion: Expansion) -> None:
        """Make the steps of the round."""

    def outcome(self) -> Outcome:
        """Return the result so far."""

    def state(self) -> State:
        """Return the state that is not part of the expansion; see `Stateful`."""

    def restore(self, state: State) -> None:
        """Continue from a state."""


def outcome_of(finished: Sequence[Finisher]) -> Outcome:
    """Combine the outcomes of all problems."""
    return Outcome(
        *(np.concatenate(parts) for parts in zip(*(finisher.outcome() for finisher in finished), strict=True))
    )
