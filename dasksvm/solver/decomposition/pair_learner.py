"""Decomposition in pairs (paper 4; paper 1, section 3.1): all examples are taken in, and then each step needs the rows of two."""

from collections.abc import Sequence

from dasksvm.solver.decomposition.batch_learner import BatchLearner
from dasksvm.solver.decomposition.intake import AllExamples, view_for_intake
from dasksvm.solver.decomposition.pair_solver import Pairs
from dasksvm.solver.decomposition.rules import PairSettings
from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.messages import CandidateBatch, ScorePlan, View
from dasksvm.solver.state.expansion import Expansion


class PairLearner(BatchLearner):
    """The two-variable solver on one problem, or on several that share the kernel rows.

    Parameters
    ----------
    settings : PairSettings
    """

    settings: PairSettings
    expansion: AllExamples
    finishing: Sequence[Pairs]

    def _expansion(self) -> Expansion:
        return AllExamples(self.settings.kernel, self.settings.problems, self.settings.cache_bytes)

    def _view(self) -> View:
        return view_for_intake(self.applied, self.settings.problems)

    def _process(self, result: CandidateBatch, plan: ScorePlan, arrivals: Ints) -> None:
        self.expansion.take_in_all(result)
        self.seen += len(result.examples) if self.phase == "online" else 0

    @property
    def stuck(self) -> bool:
        """Whether maximum gain stuck in some problem."""
        return any(now.stuck for now in self.finishing)

    def finisher(self, expansion: Expansion, problem: int, tau: float) -> Pairs:
        """Make what makes the steps of a problem."""
        start = self.started_at(expansion.example[: expansion.places])[problem] if len(self.started) else None
        return Pairs(expansion, problem, self.settings.rules, tau, self.settings.seed, start)

    def stop(self) -> None:
        """Ask for no more examples, and for no more steps."""
        super().stop()
        for now in self.finishing:
            now.limit = now.steps

    def _check(self) -> None:
        """Look no further: S has all examples."""
        self._closed()
        self._end()

    def _end(self) -> None:
        self.error = max(now.error for now in self.finishing)
        self._conclude()
        self.converged, self.phase = not self.stopped and self._within(self.settings.tau), "done"
