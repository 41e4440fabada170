"""The learner of two-class problems: LASVM (paper 1, section 3.2)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.engine.algorithm import Outcome
from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.lasvm import steps
from dasksvm.solver.lasvm.finishing import Finishing
from dasksvm.solver.lasvm.outside import Outside, best_bias
from dasksvm.solver.messages import CandidateBatch, ScorePlan
from dasksvm.solver.state.batch import Batch, in_each_problem
from dasksvm.solver.state.expansion import Expansion
from dasksvm.solver.state.working_arrays import dual_objective

# A share of free support vectors that is too small to take the bias from, unless the whole set is at the optimum.
FEW_FREE = 0.01


class TwoClassLearner(Learner):
    """LASVM on one problem, or on several that share the kernel rows.

    Parameters
    ----------
    settings : Settings
    """

    def _expansion(self) -> Expansion:
        return Expansion(self.settings.kernel, self.settings.problems, self.settings.cache_bytes)

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

    def _run(self, batch: Batch) -> bool:
        s, rules = self.expansion, self.settings.rules
        return in_each_problem(s, batch, lambda p: steps.run(s.working, s.cache, batch, rules, p))

    def _standing(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        w = self.expansion.working
        dual = dual_objective(w)
        delta = np.array([steps.uncertainty(w, p) for p in range(len(w.alpha))])
        for now in self.finishing:
            top, bottom = now.extremes()
            delta[now.problem] = top - bottom
            dual[now.problem] = now.dual
        return delta, dual

    def finisher(self, expansion: Expansion, problem: int, tau: float) -> Any:
        """Make what finishes a problem of an expansion."""
        return Finishing(expansion.working, problem, tau)

    def outcome(self, expansion: Expansion, finished: list[Any]) -> Outcome:
        """Tell what the finished problems of an expansion give."""
        extremes = np.array([now.extremes() for now in finished])
        duals = np.array([now.dual for now in finished])
        return Outcome(np.array([now.alpha for now in finished]), extremes, extremes[:, 0] - extremes[:, 1], duals)

    def _finished_alpha(self) -> NDArray[np.float64] | None:
        return np.array([now.alpha for now in self.finishing]) if self.finishing else None

    def _slack(self) -> NDArray[np.float64]:
        slack = super()._slack()
        # While no support vector is free, a single step may change who can enter, by more than was seen before.
        slack[~self.expansion.has_free()] = np.inf
        return slack

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

    def _adopt(self) -> None:
        for now in self.finishing:
            self.expansion.adopt(now.problem, now.alpha, now.g)

    def _verify(self) -> float:
        worst = 0.0
        for now in self.finishing:
            sign = self.expansion.working.sign[now.problem, : len(now.g)]
            exact = self.expansion.exact_gradients(now.problem, now.alpha)
            self.error = max(self.error, float(np.abs(exact - now.g)[now.member].max(initial=0.0)))
            now.correct(exact, sign)
            top, bottom = now.extremes()
            worst = max(worst, top - bottom)
        return worst
