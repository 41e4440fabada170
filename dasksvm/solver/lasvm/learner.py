"""The learner of two-class problems: LASVM (paper 1, section 3.2)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.lasvm import steps
from dasksvm.solver.lasvm.biased_learner import BiasedLearner
from dasksvm.solver.lasvm.finishing import LasvmFinisher
from dasksvm.solver.messages import CandidateBatch, ScorePlan
from dasksvm.solver.state.batch import Batch, in_each_problem
from dasksvm.solver.state.expansion import Expansion


@dataclass(frozen=True, kw_only=True)
class LasvmSettings(Settings):
    """The settings of LASVM.

    Attributes
    ----------
    reprocess : int
        Number of REPROCESS steps after each example.
    delta_max : float
        REPROCESS continues while δ is larger; inf: no such rule.
    second_order : bool
        Whether the partner of a pair is chosen by the gain of the step.
    """

    reprocess: int
    delta_max: float
    second_order: bool

    @property
    def rules(self) -> steps.LasvmRules:
        """The rules of the online iterations."""
        return steps.LasvmRules(self.tau, self.reprocess, self.delta_max, self.second_order, self.max_support)


class TwoClassLearner(BiasedLearner):
    """LASVM on one problem, or on several that share the kernel rows.

    Parameters
    ----------
    settings : LasvmSettings
    """

    settings: LasvmSettings
    finishing: Sequence[LasvmFinisher]

    def _solved_problems(self) -> Sequence[LasvmFinisher]:
        return self.finishing

    def _expansion(self) -> Expansion:
        return Expansion(self.settings.kernel, self.settings.problems, self.settings.cache_bytes)

    def _process(self, result: CandidateBatch, plan: ScorePlan, arrivals: Ints) -> None:
        self._iterate(result, plan, arrivals, self._make_steps)

    def _make_steps(self, batch: Batch) -> bool:
        s, rules = self.expansion, self.settings.rules
        return in_each_problem(s, batch, lambda p: steps.process_batch(s.working, s.cache, batch, rules, p))

    def finisher(self, expansion: Expansion, problem: int, tau: float) -> LasvmFinisher:
        """Return the finisher of a problem of an expansion."""
        return LasvmFinisher(expansion.working, problem, tau)

    def _slack(self) -> NDArray[np.float64]:
        slack = super()._slack()
        # While no support vector is free, a single step may change the levels of entry by more than in the last batches.
        slack[~self.expansion.has_free()] = np.inf
        return slack

    def _after_finishing(self) -> None:
        self._make_passes(self._adopt, self._verify)

    def _adopt(self) -> None:
        for finisher in self.finishing:
            self.expansion.adopt(finisher.problem, finisher.alpha, finisher.g)

    def _verify(self) -> float:
        worst = 0.0
        for finisher in self.finishing:
            sign = self.expansion.working.sign[finisher.problem, : len(finisher.g)]
            exact = self.expansion.exact_gradients(finisher.problem, finisher.alpha)
            self.error = max(self.error, float(np.abs(exact - finisher.g)[finisher.member].max(initial=0.0)))
            finisher.set_gradients(exact, sign)
            top, bottom = finisher.extremes()
            worst = max(worst, top - bottom)
        return worst
