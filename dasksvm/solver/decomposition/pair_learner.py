"""The learner of decomposition in pairs (paper 4; paper 1, section 3.1).

First all examples become members with α = 0. Then each step changes two coefficients, for which it needs two kernel rows.
"""

from collections.abc import Sequence

from dasksvm.solver.decomposition.intake import AllExamplesExpansion, view_for_intake
from dasksvm.solver.decomposition.pair_solver import PairFinisher
from dasksvm.solver.decomposition.rules import PairSettings
from dasksvm.solver.decomposition.starting_point import StartingPoint
from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.lasvm.biased_learner import BiasedLearner
from dasksvm.solver.messages import CandidateBatch, ScorePlan, View
from dasksvm.solver.state.expansion import Expansion


class PairLearner(BiasedLearner):
    """Decomposition in pairs on one problem, or on several that share the kernel rows.

    Parameters
    ----------
    settings : PairSettings
    """

    STATE = (*BiasedLearner.STATE, "start")
    settings: PairSettings
    expansion: AllExamplesExpansion
    finishing: Sequence[PairFinisher]

    def __init__(self, settings: PairSettings) -> None:
        super().__init__(settings)
        self.start = StartingPoint.zero(settings.problems)

    def _solved_problems(self) -> Sequence[PairFinisher]:
        return self.finishing

    def _expansion(self) -> Expansion:
        return AllExamplesExpansion(self.settings.kernel, self.settings.problems, self.settings.cache_bytes)

    def _view(self) -> View:
        return view_for_intake(self.applied, self.settings.problems)

    def _process(self, result: CandidateBatch, plan: ScorePlan, arrivals: Ints) -> None:
        self.expansion.add_all(result)
        self.seen += len(result.examples) if self.phase == "online" else 0

    @property
    def stuck(self) -> bool:
        """Whether the pair selection stalled in some problem although some pairs violate."""
        return any(finisher.stuck for finisher in self.finishing)

    def finisher(self, expansion: Expansion, problem: int, tau: float) -> PairFinisher:
        """Return the finisher of a problem."""
        start = self.start.of(expansion.example[: expansion.places])[problem] if len(self.start) else None
        return PairFinisher(expansion, problem, self.settings.rules, tau, self.settings.seed, start)

    def ended_early(self) -> bool:
        """Return whether the limit of steps or a callback ended the run before it was complete."""
        return self.stopped or (not self.converged and self.progress().steps >= self.settings.rules.limit)

    def _claims_convergence(self) -> bool:
        return not self.stopped

    def stop(self) -> None:
        """Request no more examples, and make no more steps."""
        super().stop()
        for finisher in self.finishing:
            finisher.limit = finisher.steps

    def _begin_checking(self) -> None:
        """End the run: all examples are members, so that none has to be checked."""
        self._determine_bias()
        self._end()

    def _end(self) -> None:
        self.error = max(finisher.error for finisher in self.finishing)
        self._conclude()
        self.converged, self.phase = not self.stopped and self._violates_at_most(self.settings.tau), "done"
