"""The learner of two-class problems: LASVM (paper 1, section 3.2)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver import lasvm
from dasksvm.solver.algorithm import Outcome
from dasksvm.solver.batch import Batch, in_each_problem
from dasksvm.solver.expansion import Expansion
from dasksvm.solver.finishing import Finishing
from dasksvm.solver.learner import Learner
from dasksvm.solver.working import dual_objective


class TwoClassLearner(Learner):
    """LASVM on one problem, or on several that share the kernel rows.

    Parameters
    ----------
    settings : Settings
    """

    def _expansion(self) -> Expansion:
        return Expansion(self.settings.kernel, self.settings.problems, self.settings.cache_bytes)

    def _run(self, batch: Batch) -> bool:
        s, rules = self.expansion, self.settings.rules
        return in_each_problem(s, batch, lambda p: lasvm.run(s.working, s.cache, batch, rules, p))

    def _standing(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        w = self.expansion.working
        dual = dual_objective(w)
        delta = np.array([lasvm.uncertainty(w, p) for p in range(len(w.alpha))])
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

    def _closed(self) -> bool:
        self.extremes = self.outcome(self.expansion, self.finishing).extremes
        up_down = [now.movable() for now in self.finishing]
        return all(bool(np.any(up & down)) for up, down in up_down)

    def _adopt(self) -> None:
        for now in self.finishing:
            self.expansion.adopt(now.problem, now.alpha, now.g)

    def _verify(self) -> float:
        worst = 0.0
        for now in self.finishing:
            sign = self.expansion.working.sign[now.problem, : len(now.g)]
            now.correct(self.expansion.exact_gradients(now.problem, now.alpha), sign)
            top, bottom = now.extremes()
            worst = max(worst, top - bottom)
        return worst
