"""What solves the problem restricted to the expansion: the interface that finishing and the batch solvers implement."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.kernels.features import Floats, Ints
from dasksvm.solver.state.capture import State
from dasksvm.solver.state.expansion import Expansion

Values = NDArray[np.float64]


class Outcome(NamedTuple):
    """What finishing gives: coefficients (P, V), the extremes that the biases lie between (P, 2), violations and duals (P,)."""

    coefficients: Values
    extremes: Values
    delta: Values
    dual: Values

    @classmethod
    def of_problem(cls, alpha: Values, extremes: tuple[float, float], delta: float, dual: float) -> Self:
        """Make the outcome of one problem with coefficients of shape (V,)."""
        return cls(alpha[None], np.array([extremes]), np.array([delta]), np.array([dual]))


class Finisher(Protocol):
    """The steps of one problem, on copies of its coefficients and gradients.

    It is used in rounds. As long as `choose` returns True, a round is: `missing` lists the members whose kernel rows have to be
    computed, `put` receives these rows, `solve` makes the steps. Between two rounds, and between `missing` and `put`, its whole
    state is what `state` gives.
    """

    @property
    def problem(self) -> int:
        """Number of the problem."""

    @property
    def steps(self) -> int:
        """Steps made so far."""

    @property
    def alpha(self) -> Values:
        """Coefficients, or dual variables, of all places: shape (V,), or (d, V) for a machine."""

    def choose(self, expansion: Expansion) -> bool:
        """Choose what the next round works on; False when the problem is solved, or nothing more can be gained."""

    def order(self, expansion: Expansion) -> Ints:
        """Slots of the places that the columns of kernel rows stand for."""

    def missing(self, expansion: Expansion) -> Ints:
        """List the slots of the members whose kernel rows the round needs and does not have."""

    def put(self, expansion: Expansion, rows: Floats) -> None:
        """Keep the rows that `missing` listed."""

    def solve(self, expansion: Expansion) -> None:
        """Make the steps of the round."""

    def outcome(self) -> Outcome:
        """Tell what it has come to."""

    def state(self) -> State:
        """Give what a snapshot needs beside the expansion; see `Stateful`."""

    def restore(self, state: State) -> None:
        """Go on where `state` was taken."""


def outcome_of(finished: Sequence[Finisher]) -> Outcome:
    """Put the outcomes of all problems together."""
    return Outcome(
        *(np.concatenate(parts) for parts in zip(*(finisher.outcome() for finisher in finished), strict=True))
    )
