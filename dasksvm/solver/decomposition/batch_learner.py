"""The base class of the batch solvers, which solve the problem of all examples."""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.decomposition.rules import DecompositionSettings
from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.lasvm.biased_learner import BiasedLearner


class BatchLearner(BiasedLearner):
    """A learner that solves the problem of all examples, starting from α = 0 or from given coefficients.

    Attributes
    ----------
    start_examples : ndarray of int64, shape (S,)
        Examples whose coefficients are given, ascending; empty to start from α = 0.
    start_alpha : ndarray of float64, shape (P, S)
        Their coefficients.
    """

    STATE: ClassVar[tuple[str, ...]] = (*BiasedLearner.STATE, "start_examples", "start_alpha")
    settings: DecompositionSettings
    start_examples: Ints = np.zeros(0, np.int64)
    start_alpha: NDArray[np.float64] = np.zeros((1, 0))

    @property
    def stuck(self) -> bool:
        """Whether the pair selection stalled although some pairs violate."""
        return False

    def ended_early(self) -> bool:
        """Return whether the limit of steps or a callback ended the run before it was complete."""
        return self.stopped or (not self.converged and self.progress().steps >= self.settings.rules.limit)

    def _claims_convergence(self) -> bool:
        return not self.stopped

    def begin_at(self, examples: Ints, alpha: NDArray[np.float64]) -> None:
        """Start from coefficients α of some examples, shape (P, S), within their boxes and with sum 0."""
        order = np.argsort(examples)
        self.start_examples, self.start_alpha = examples[order], alpha[:, order]

    def start_alpha_of(self, examples: Ints) -> NDArray[np.float64]:
        """Return the coefficients that some examples start from, shape (P, m)."""
        found = np.zeros((self.settings.problems, len(examples)))
        if len(self.start_examples):
            at = np.minimum(np.searchsorted(self.start_examples, examples), len(self.start_examples) - 1)
            hit = self.start_examples[at] == examples
            found[:, hit] = self.start_alpha[:, at[hit]]
        return found
