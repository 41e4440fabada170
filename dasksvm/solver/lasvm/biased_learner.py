"""What the learners of two-class problems with a bias share: how the bias is found, and what is claimed of the whole set."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.engine.learner import Learner, Outcome
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.lasvm import steps
from dasksvm.solver.lasvm.finishing import Finishing
from dasksvm.solver.lasvm.outside import Outside, best_bias
from dasksvm.solver.messages import CandidateBatch, ScorePlan
from dasksvm.solver.state.expansion import Expansion
from dasksvm.solver.state.working_arrays import dual_objective

# A share of free support vectors that is too small to take the bias from, unless the whole set is at the optimum.
FEW_FREE = 0.01


class BiasedLearner(Learner):
    """A learner of one problem with a bias, or of several that share the kernel rows.

    Parameters
    ----------
    settings : Settings
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        # Which problems S leaves the bias of open, and what the last look has found.
        self.open: NDArray[np.bool_] = np.zeros(settings.problems, np.bool_)
        self.outside = Outside(settings.problems, 0)

    def more_state(self) -> dict[str, NDArray[Any]]:
        """Give what the last look has found."""
        found = self.outside
        return {
            "open": self.open,
            "outside.extremes": found.extremes,
            "outside.gradient": found.gradient,
            "outside.weight": found.weight,
        }

    def take_state(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Go on with what `more_state` gave."""
        self.open = arrays["open"].copy()
        for name in ("extremes", "gradient", "weight"):
            setattr(self.outside, name, arrays[f"outside.{name}"].copy())

    def outcome(self, expansion: Expansion, finished: list[Any]) -> Outcome:
        """Tell what the finished problems of an expansion give."""
        extremes = np.array([now.extremes() for now in finished])
        duals = np.array([now.dual for now in finished])
        return Outcome(np.array([now.alpha for now in finished]), extremes, extremes[:, 0] - extremes[:, 1], duals)

    def _standing(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        w = self.expansion.working
        dual = dual_objective(w)
        delta = np.array([steps.uncertainty(w, p) for p in range(len(w.alpha))])
        for now in self.finishing:
            top, bottom = now.extremes()
            delta[now.problem] = top - bottom
            dual[now.problem] = now.dual
        return delta, dual

    def _finished_alpha(self) -> NDArray[np.float64] | None:
        return np.array([now.alpha for now in self.finishing]) if self.finishing else None

    def _closed(self) -> bool:
        self.extremes = self.outcome(self.expansion, self.finishing).extremes
        self.open = np.array([self._leaves_open(now) for now in self.finishing])
        some = bool(self.open.any())
        self.outside = Outside(self.settings.problems, len(self.order) if some else 0)
        return not some

    def _leaves_open(self, now: Any) -> bool:
        """Tell whether S leaves the bias of a problem open: no support vector is free, or, short of the optimum, hardly any.

        Then the few that are free may lie anywhere: S is not all that the bias depends on.
        """
        up, down = now.movable()
        free, support = np.count_nonzero(up & down), np.count_nonzero(now.alpha)
        return bool(free <= (0.0 if self._claims() else FEW_FREE * support))

    def _look(self, result: CandidateBatch, plan: ScorePlan) -> None:
        """Take in the gradients of a batch."""
        known = self.expansion.known(result.examples, None)
        self.outside.note(result, self.expansion.holds(known), self.order.base)

    def _conclude(self) -> None:
        """Settle the bias, and find the largest violation of the whole set."""
        for now in self.finishing:
            p = now.problem
            if not np.isfinite(self.extremes[p]).all():
                self.violation[p] = 0.0  # one class, or none: any bias beyond the other extreme will do
                continue
            if self.open[p]:
                self.extremes[p] = self._best_bias(now)
            bias = self.extremes[p].mean()
            top, bottom = now.extremes()
            rising, falling = self.outside.extremes[p]
            self.violation[p] = max(max(top, rising) - bias, bias - min(bottom, falling), 0.0)

    def _best_bias(self, now: Finishing) -> tuple[float, float]:
        """Find the best biases of a problem for the whole set, the members among it."""
        members = np.flatnonzero(now.member)
        bounds = (now.upper - now.lower)[members] * self.expansion.working.sign[now.problem, members]
        gradient, weight = self.outside.gradient[now.problem], self.outside.weight[now.problem]
        return best_bias(np.concatenate([gradient, now.g[members]]), np.concatenate([weight, bounds]))
