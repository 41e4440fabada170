"""The learner of two-class problems without a bias: LASVM-G and its relatives (paper 2)."""

from dataclasses import dataclass

import numpy as np

from dasksvm.solver.engine.finisher import Outcome
from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.engine.tiles import band_depth
from dasksvm.solver.kernels.features import Floats, Ints, Values
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.messages import CandidateBatch, ScorePlan
from dasksvm.solver.state.batch import Batch, in_each_problem
from dasksvm.solver.state.capture import Stateful
from dasksvm.solver.state.expansion import Expansion
from dasksvm.solver.state.working_arrays import dual_objective
from dasksvm.solver.unbiased import gap_steps


class BandExpansion(Expansion):
    """An expansion without the constraint that coefficients add up to 0; an example enters if 1 - y f lies within a band.

    Parameters
    ----------
    kernel : Kernel
    problems : int
    cache_bytes : int
    rules : GapRules
    """

    band = True

    def __init__(self, kernel: Kernel, problems: int, cache_bytes: int, rules: gap_steps.GapRules) -> None:
        super().__init__(kernel, problems, cache_bytes)
        self.rules = rules

    def entry_limits(self) -> tuple[Values, Values]:
        """Return the ends of the band of each problem."""
        found = gap_steps.bands(self.working, self.rules)
        return found[:, 1], -found[:, 0]

    def violations_and_state(self, result: CandidateBatch, at: Ints, found: Values) -> tuple[Values, Values]:
        """Return how far inside the band the examples `at` of a batch are, and the state to store for them: their gradients."""
        gradient = result.sign[:, at] - found
        return band_depth(result.sign[:, at] * gradient, *self.entry_limits()), gradient


class IdleFinisher(Stateful):
    """A finisher that does nothing, because every iteration brings the gap to its target."""

    steps = 0

    def __init__(self, expansion: Expansion, problem: int) -> None:
        w, places = expansion.working, expansion.places
        self.problem = problem
        self.alpha: Values = w.alpha[problem, :places].copy()
        self.gap = gap_steps.gap(w, problem)
        self.dual = float(dual_objective(w)[problem])

    def choose(self, expansion: Expansion) -> bool:
        """Return False: there is nothing to do."""
        return False

    def order(self, expansion: Expansion) -> Ints:
        """Return the slots of all places."""
        return expansion.order()

    def missing(self, expansion: Expansion) -> Ints:
        """Return no slots."""
        return np.zeros(0, np.int64)

    def put(self, expansion: Expansion, rows: Floats) -> None:
        """Do nothing."""

    def solve(self, expansion: Expansion) -> None:
        """Do nothing."""

    def outcome(self) -> Outcome:
        """Return the result of the iterations."""
        return Outcome.of_problem(self.alpha, (0.0, 0.0), self.gap, self.dual)


class UnbiasedLearner(Learner):
    """A learner of two-class problems without a bias."""

    measure = "gap"

    def _finished_alpha(self) -> Values | None:
        return None

    def _determine_bias(self) -> bool:
        return True

    def _check_batch(self, result: CandidateBatch, plan: ScorePlan) -> None:
        """Do nothing: there is no bias, and no claim about the whole set."""

    def _conclude(self) -> None:
        """Do nothing: the bias is 0."""


@dataclass(frozen=True, kw_only=True)
class GapSettings(Settings):
    """The settings of LASVM-G and its relatives.

    Attributes
    ----------
    rules : GapRules
    """

    converges = False
    rules: gap_steps.GapRules


class GapLearner(UnbiasedLearner):
    """LASVM-G, LASVM-NC, LASVM-I or FULL SVM on one problem, or on several that share the kernel rows.

    Parameters
    ----------
    settings : GapSettings
    """

    settings: GapSettings

    def _expansion(self) -> Expansion:
        s = self.settings
        return BandExpansion(s.kernel, s.problems, s.cache_bytes, s.rules)

    def _process(self, result: CandidateBatch, plan: ScorePlan, arrivals: Ints) -> None:
        self._iterate(result, plan, arrivals, self._make_steps)

    def _make_steps(self, batch: Batch) -> bool:
        s, rules, max_support = self.expansion, self.settings.rules, self.settings.max_support
        statuses = np.zeros((self.settings.problems, gap_steps.STATUS_FIELDS))
        return in_each_problem(
            s, batch, lambda p: gap_steps.process_batch(s.working, s.cache, batch, rules, max_support, statuses, p)
        )

    def _measure_and_dual(self) -> tuple[Values, Values]:
        w = self.expansion.working
        return np.array([gap_steps.gap(w, p) for p in range(len(w.alpha))]), dual_objective(w)

    def finisher(self, expansion: Expansion, problem: int, tau: float) -> IdleFinisher:
        """Return a finisher that does nothing."""
        return IdleFinisher(expansion, problem)
