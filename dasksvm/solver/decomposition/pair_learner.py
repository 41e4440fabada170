"""The learner of decomposition in pairs (paper 4; paper 1, section 3.1).

First all examples become members with α = 0. Then each step changes two coefficients, for which it needs two kernel rows.
"""

from collections.abc import Sequence

from dasksvm.solver.decomposition.batch_learner import BatchLearner
from dasksvm.solver.decomposition.intake import AllExamplesExpansion, view_for_intake
from dasksvm.solver.decomposition.pair_solver import PairFinisher
from dasksvm.solver.decomposition.rules import PairSettings
from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.messages import CandidateBatch, ScorePlan, View
from dasksvm.solver.state.expansion import Expansion


class PairLearner(BatchLearner):
    """Decomposition in pairs on one problem, or on several that share the kernel rows.

    Parameters
    ----------
    settings : PairSettings
    """

    settings: PairSettings
    expansion: AllExamplesExpansion
    finishing: Sequence[PairFinisher]

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
        start = (
            self.start_alpha_of(expansion.example[: expansion.places])[problem] if len(self.start_examples) else None
        )
        return PairFinisher(expansion, problem, self.settings.rules, tau, self.settings.seed, start)

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
