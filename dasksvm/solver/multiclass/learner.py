"""The learner of a multi-class machine, with the steps of paper 5 (chapters 4 and 5) instead of those of LASVM."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.engine.algorithm import Outcome
from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.engine.tiles import excess
from dasksvm.solver.generator import seeded
from dasksvm.solver.messages import CandidateBatch, ScorePlan
from dasksvm.solver.multiclass.expansion import Patterns
from dasksvm.solver.multiclass.finishing import Blocks
from dasksvm.solver.multiclass.online import Schedule, process
from dasksvm.solver.multiclass.schedule import initial_gains
from dasksvm.solver.multiclass.structure import coefficients
from dasksvm.solver.state.batch import Batch
from dasksvm.solver.state.expansion import Expansion

# The batch solver solves its problem each time LEAST_HELD or more new patterns have entered, and only down to a violation of
# COARSE while there are more patterns to come.
LEAST_HELD, COARSE = 4096, 0.3


class MachineLearner(Learner):
    """Online passes of S2DO or LaRank steps, and, where it ends with finishing, the machine's optimum over its expansion.

    Parameters
    ----------
    settings : Settings
        With a machine and its steps.
    """

    expansion: Patterns

    def __init__(self, settings: Settings) -> None:
        assert settings.machine is not None
        assert settings.steps is not None
        self.machine, self.rules = settings.machine, settings.steps
        super().__init__(settings)
        self.extremes = np.zeros((self.machine.classes, 2))
        # The largest violation outside S in the last pass over the data.
        self.outside = np.zeros(1)
        self.schedule = Schedule(
            initial_gains(self.rules.steps), seeded(settings.seed), np.zeros(1, np.int64), np.full(1, -1.0)
        )

    def _expansion(self) -> Expansion:
        return Patterns(self.settings.kernel, self.machine, self.settings.cache_bytes)

    def _run(self, batch: Batch) -> bool:
        process(self.expansion, batch, self.machine, self.rules, self.schedule)
        return self._held() >= self.settings.rules.max_support

    def _held(self) -> int:
        """Count the patterns, for the batch solver those that it has found to be support patterns."""
        w = self.expansion.working
        solved = np.count_nonzero(w.load[: self.expansion.places] > 0.0)
        return int(solved if self.rules.steps == 1 else w.count[0])

    def _pauses(self) -> bool:
        held = self._held()
        new = int(self.expansion.working.count[0]) - held
        return self.rules.steps == 1 and new >= min(max(LEAST_HELD, held), self.settings.rules.max_support)

    def _tau(self) -> float:
        return max(super()._tau(), COARSE) if self.paused and not self.stopped else super()._tau()

    def _finished_alpha(self) -> NDArray[np.float64] | None:
        return self.finishing[-1].alpha if self.finishing else None

    def _standing(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        now = self.finishing if self.finishing else [Blocks(self.expansion, 0.0)]
        found = self.outcome(self.expansion, now)
        return found.delta, found.dual

    def finisher(self, expansion: Expansion, problem: int, tau: float) -> Blocks:
        """Make what finishes an expansion."""
        assert isinstance(expansion, Patterns)
        return Blocks(expansion, tau)

    def outcome(self, expansion: Expansion, finished: list[Blocks]) -> Outcome:
        """Tell what a finished expansion gives; there is no bias."""
        assert isinstance(expansion, Patterns)
        now = finished[-1]
        return Outcome(
            coefficients(self.machine, now.alpha, expansion.labels()),
            np.zeros((self.machine.classes, 2)),
            np.array([now.violations().max(initial=0.0)]),
            np.array([now.dual()]),
        )

    def more_state(self) -> dict[str, NDArray[Any]]:
        """Give the state of the schedule, and what the last look has found."""
        return self.schedule._asdict() | {"outside": self.outside}

    def dual_variables(self) -> NDArray[np.float64]:
        """Give α of the support patterns, in the order of `solution`, shape (d, S)."""
        alpha: NDArray[np.float64] = self.finishing[-1].alpha
        return alpha[:, self.expansion.support(self.outcome(self.expansion, self.finishing).coefficients)]

    # Finishing

    def copy_tau(self) -> float:
        """Where finishing stops on a copy that is shown on the way: a run without finishing shows what it has."""
        return self._tau()

    def _closed(self) -> bool:
        self.outside[:] = 0.0
        if self.rules.steps == 1:
            self._adopt()
        return True

    def _look(self, result: CandidateBatch, plan: ScorePlan) -> None:
        """Take in how far a batch violates."""
        (held,) = self.expansion.holds(self.expansion.known(result.examples, None))
        outside = ~held & (result.bound[0] > 0)
        found = excess(plan.view, result.codes, result.sign, result.margins)[0]
        self.outside[0] = max(self.outside[0], found.max(where=outside, initial=0.0))

    def _conclude(self) -> None:
        """Find the largest violation of the whole set."""
        members = self.outcome(self.expansion, self.finishing).delta
        self.violation = np.maximum(members, self.outside)

    def _adopt(self) -> None:
        self.expansion.replace(self.finishing[0].alpha, self.finishing[0].score)

    def _verify(self) -> float:
        now = self.finishing[-1]
        exact = self.expansion.exact_scores(now.alpha)
        held = self.expansion.working.member[: self.expansion.places]
        self.error = float(np.abs(exact - now.score)[:, held].max(initial=0.0))
        now.score = exact
        return float(now.violations().max(initial=0.0))
