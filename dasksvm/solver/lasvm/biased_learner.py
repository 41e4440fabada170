"""The base class of learners of problems with a bias: it determines the bias, and verifies claims about the whole set."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.engine.finisher import outcome_of
from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.lasvm import steps
from dasksvm.solver.lasvm.outside import Outside, best_bias
from dasksvm.solver.messages import CandidateBatch, ScorePlan
from dasksvm.solver.state.working_arrays import dual_objective

# If a smaller share of the support vectors is free, they do not determine the bias, unless the whole set is at the optimum.
FEW_FREE = 0.01


class BiasedProblem(Protocol):
    """A problem with a bias that is being finished, or has been. Arrays have an entry for each place."""

    @property
    def problem(self) -> int:
        """Number of the problem."""

    @property
    def alpha(self) -> NDArray[np.float64]:
        """Coefficients."""

    @property
    def dual(self) -> float:
        """W(α) of paper 1, equation 4."""

    @property
    def g(self) -> NDArray[np.float64]:
        """Gradients."""

    @property
    def lower(self) -> NDArray[np.float64]:
        """Lower bound of each coefficient."""

    @property
    def upper(self) -> NDArray[np.float64]:
        """Upper bound of each coefficient."""

    @property
    def member(self) -> NDArray[np.bool_]:
        """Whether each place has a member of this problem."""

    def movable(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which coefficients may rise and which may fall."""

    def extremes(self) -> tuple[float, float]:
        """Return g_max and g_min of paper 1, equation 10; -inf and inf if no coefficient may move."""


class BiasedLearner(Learner):
    """A learner of one problem with a bias, or of several that share the kernel rows.

    Parameters
    ----------
    settings : Settings
    """

    STATE: ClassVar[tuple[str, ...]] = (*Learner.STATE, "undetermined", "outside")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        # The problems whose bias S does not determine, and the gradients outside S from the last check.
        self.undetermined: NDArray[np.bool_] = np.zeros(settings.problems, np.bool_)
        self.outside = Outside(settings.problems, 0)

    @abstractmethod
    def _solved_problems(self) -> Sequence[BiasedProblem]:
        """Return the problems that are being finished, or have been, one by one."""

    def _measure_and_dual(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        w = self.expansion.working
        dual = dual_objective(w)
        delta = np.array([steps.uncertainty(w, p) for p in range(len(w.alpha))])
        for solved in self._solved_problems():
            top, bottom = solved.extremes()
            delta[solved.problem] = top - bottom
            dual[solved.problem] = solved.dual
        return delta, dual

    def _finished_alpha(self) -> NDArray[np.float64] | None:
        return np.array([solved.alpha for solved in self._solved_problems()]) if self.finishing else None

    def _determine_bias(self) -> bool:
        self.extremes = outcome_of(self.finishing).extremes
        self.undetermined = np.array([self._is_undetermined(solved) for solved in self._solved_problems()])
        some = bool(self.undetermined.any())
        self.outside = Outside(self.settings.problems, len(self.order) if some else 0)
        return not some

    def _is_undetermined(self, solved: BiasedProblem) -> bool:
        """Return whether S does not determine the bias of a problem.

        This is so if no support vector is free. Before the optimum is reached, it is also so if only a few are free, because
        their gradients may be far from those at the optimum.
        """
        up, down = solved.movable()
        free, support = np.count_nonzero(up & down), np.count_nonzero(solved.alpha)
        return bool(free <= (0.0 if self._claims_convergence() else FEW_FREE * support))

    def _check_batch(self, result: CandidateBatch, plan: ScorePlan) -> None:
        """Record the gradients of a batch."""
        known = self.expansion.find_places(result.examples, None)
        self.outside.record(result, self.expansion.is_member(known), self.order.base)

    def _conclude(self) -> None:
        """Set the bias, and compute the largest violation of the whole set."""
        for solved in self._solved_problems():
            p = solved.problem
            if not np.isfinite(self.extremes[p]).all():
                self.violation[p] = 0.0  # S has at most one class: any bias beyond the other extreme is optimal
                continue
            if self.undetermined[p]:
                self.extremes[p] = self._best_bias(solved)
            bias = self.extremes[p].mean()
            top, bottom = solved.extremes()
            rising, falling = self.outside.extremes[p]
            self.violation[p] = max(max(top, rising) - bias, bias - min(bottom, falling), 0.0)

    def _best_bias(self, solved: BiasedProblem) -> tuple[float, float]:
        """Return the range of the best biases of a problem for the whole set, members included."""
        members = np.flatnonzero(solved.member)
        bounds = (solved.upper - solved.lower)[members] * self.expansion.working.sign[solved.problem, members]
        gradient, weight = self.outside.gradient[solved.problem], self.outside.weight[solved.problem]
        return best_bias(np.concatenate([gradient, solved.g[members]]), np.concatenate([weight, bounds]))
