"""What a learner leaves to the algorithm that it runs."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.messages import CandidateBatch, ScorePlan
from dasksvm.solver.state.batch import Batch
from dasksvm.solver.state.expansion import Expansion


class Outcome(NamedTuple):
    """What finishing gives: coefficients (P, V), the extremes that the biases lie between (P, 2), violations and duals."""

    coefficients: NDArray[np.float64]
    extremes: NDArray[np.float64]
    delta: NDArray[np.float64]
    dual: NDArray[np.float64]


class Algorithm(ABC):
    """The steps of an online solver, and how it is finished."""

    # What `Progress.delta` is.
    measure = "delta"

    def more_state(self) -> dict[str, NDArray[Any]]:
        """Give the arrays, changed in place, that a subclass keeps beside the expansion."""
        return {}

    def take_state(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Go on with what `more_state` gave."""
        for name, array in self.more_state().items():
            array[:] = arrays[name]

    @abstractmethod
    def _expansion(self) -> Expansion:
        """Make an empty expansion."""

    @abstractmethod
    def _run(self, batch: Batch) -> bool:
        """Make the online iterations of a batch; tell whether S is as large as it may be."""

    def _pauses(self) -> bool:
        """Tell whether what came is to be finished before the pass goes on."""
        return False

    @abstractmethod
    def _standing(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The largest violation and the dual of each problem, from the working gradients."""

    @abstractmethod
    def finisher(self, expansion: Expansion, problem: int, tau: float) -> Any:
        """Make what finishes a problem of an expansion."""

    @abstractmethod
    def outcome(self, expansion: Expansion, finished: list[Any]) -> Outcome:
        """Tell what the finished problems of an expansion give."""

    @abstractmethod
    def _finished_alpha(self) -> NDArray[np.float64] | None:
        """The coefficients that finishing has found, None before it."""

    @abstractmethod
    def _closed(self) -> bool:
        """Tell whether the finished expansion determines the bias, or the whole set has to be looked at for it."""

    @abstractmethod
    def _look(self, result: CandidateBatch, plan: ScorePlan) -> None:
        """Take in a batch of a look at examples outside S."""

    @abstractmethod
    def _conclude(self) -> None:
        """Settle the bias, and where the run ends with a claim the largest violation of the whole set."""

    def _adopt(self) -> None:
        """Give the finished coefficients to the expansion; for algorithms whose finishing can be followed by more."""
        raise NotImplementedError

    def _verify(self) -> float:
        """Compute the gradients of the members in float64, and give the largest violation; for the same algorithms."""
        raise NotImplementedError
