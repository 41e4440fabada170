"""The learner of multi-class machines (paper 5, chapters 4 and 5)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.engine.finisher import outcome_of
from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.engine.tiles import excess
from dasksvm.solver.generator import seeded
from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.messages import CandidateBatch, ScorePlan
from dasksvm.solver.multiclass.expansion import PatternExpansion
from dasksvm.solver.multiclass.finishing import MachineFinisher
from dasksvm.solver.multiclass.online import MachineRules, Schedule, process_batch
from dasksvm.solver.multiclass.schedule import initial_gains
from dasksvm.solver.multiclass.structure import Machine
from dasksvm.solver.state.batch import Batch
from dasksvm.solver.state.expansion import Expansion

# The batch solver solves its problem whenever LEAST_HELD or more new patterns have entered. While more patterns are to enter, it
# stops at a violation of COARSE.
LEAST_HELD, COARSE = 4096, 0.3


@dataclass(frozen=True, kw_only=True)
class MachineSettings(Settings):
    """The settings of a multi-class machine.

    Attributes
    ----------
    machine : Machine
    rules : MachineRules
        The rules of the online iterations.
    """

    machine: Machine
    rules: MachineRules


class MachineLearner(Learner):
    """Online passes of S2DO or LaRank steps; finishing then computes the machine's optimum over the expansion.

    Parameters
    ----------
    settings : MachineSettings
    """

    STATE = (*Learner.STATE, "outside", "schedule")
    settings: MachineSettings
    expansion: PatternExpansion
    finishing: Sequence[MachineFinisher]

    def __init__(self, settings: MachineSettings) -> None:
        self.machine, self.rules = settings.machine, settings.rules
        super().__init__(settings)
        self.extremes = np.zeros((self.machine.classes, 2))
        # The largest violation outside S in the last pass over the data.
        self.outside = np.zeros(1)
        self.schedule = Schedule(
            initial_gains(self.rules.steps), seeded(settings.seed), np.zeros(1, np.int64), np.full(1, -1.0)
        )

    def _expansion(self) -> Expansion:
        return PatternExpansion(self.settings.kernel, self.machine, self.settings.cache_bytes)

    def _process(self, result: CandidateBatch, plan: ScorePlan, arrivals: Ints) -> None:
        self._iterate(result, plan, arrivals, self._make_steps)

    def _make_steps(self, batch: Batch) -> bool:
        process_batch(self.expansion, batch, self.machine, self.rules, self.schedule)
        return self._count_patterns() >= self.settings.max_support

    def _count_patterns(self) -> int:
        """Count the members; with the batch solver only those with α > 0."""
        w = self.expansion.working
        solved = np.count_nonzero(w.load[: self.expansion.places] > 0.0)
        return int(solved if self.rules.steps == 1 else w.counts[0])

    def _pause_due(self) -> bool:
        held = self._count_patterns()
        new = int(self.expansion.working.counts[0]) - held
        return self.rules.steps == 1 and new >= min(max(LEAST_HELD, held), self.settings.max_support)

    def _finishing_tau(self) -> float:
        return max(super()._finishing_tau(), COARSE) if self.paused and not self.stopped else super()._finishing_tau()

    def _finished_alpha(self) -> NDArray[np.float64] | None:
        return self.finishing[-1].alpha if self.finishing else None

    def _measure_and_dual(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        found = outcome_of(self.finishing or [MachineFinisher(self.expansion, 0.0)])
        return found.delta, found.dual

    def finisher(self, expansion: Expansion, problem: int, tau: float) -> MachineFinisher:
        """Return the finisher of an expansion."""
        assert isinstance(expansion, PatternExpansion)
        return MachineFinisher(expansion, tau)

    def dual_variables(self) -> NDArray[np.float64]:
        """Return α of the support patterns, in the order of `solution`, shape (d, S)."""
        alpha: NDArray[np.float64] = self.finishing[-1].alpha
        return alpha[:, self.expansion.support(outcome_of(self.finishing).coefficients)]

    # Finishing

    def preview_tau(self) -> float:
        """Return the tolerance of finishing for an intermediate model; without finishing it is infinite."""
        return self._finishing_tau()

    def _determine_bias(self) -> bool:
        self.outside[:] = 0.0
        if self.rules.steps == 1:
            self._adopt()
        return True

    def _check_batch(self, result: CandidateBatch, plan: ScorePlan) -> None:
        """Record the largest violation of a batch."""
        (held,) = self.expansion.is_member(self.expansion.find_places(result.examples, None))
        outside = ~held & (result.bound[0] > 0)
        found = excess(plan.view, result.codes, result.sign, result.margins)[0]
        self.outside[0] = max(self.outside[0], found.max(where=outside, initial=0.0))

    def _conclude(self) -> None:
        """Compute the largest violation of the whole set."""
        members = outcome_of(self.finishing).delta
        self.violation = np.maximum(members, self.outside)

    def _after_finishing(self) -> None:
        self._make_passes(self._adopt, self._verify)

    def _adopt(self) -> None:
        self.expansion.replace(self.finishing[0].alpha, self.finishing[0].score)

    def _verify(self) -> float:
        finisher = self.finishing[-1]
        exact = self.expansion.exact_scores(finisher.alpha)
        held = self.expansion.working.member[: self.expansion.places]
        self.error = float(np.abs(exact - finisher.score)[:, held].max(initial=0.0))
        finisher.score = exact
        return float(finisher.violations().max(initial=0.0))
