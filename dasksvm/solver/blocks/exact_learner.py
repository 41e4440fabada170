"""Decomposition in blocks: the rounds of the block engine until the whole set is solved, with the rules of the batch solvers.

It differs from `LaSVC(epochs="converged")` in what the user may choose: the coefficients to start from, the selection of pairs
within a working set (paper 4), its size, whether to shrink, and the number of steps.
"""

from dataclasses import dataclass

import numpy as np

from dasksvm.solver.blocks.learner import BlocksLearner, BlocksSettings
from dasksvm.solver.blocks.rounds import RoundRules
from dasksvm.solver.decomposition.intake import view_for_intake
from dasksvm.solver.decomposition.rules import BlockRules, DecompositionSettings
from dasksvm.solver.decomposition.starting_point import StartingPoint
from dasksvm.solver.engine.selection import RandomOrder
from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.messages import CandidateBatch, RowsPlan, ScorePlan, View


@dataclass(frozen=True, kw_only=True)
class ExactSettings(DecompositionSettings, BlocksSettings):
    """The settings of decomposition in blocks."""

    rules: BlockRules


class ExactLearner(BlocksLearner):
    """Decomposition in blocks on one problem, or on several that share the kernel values.

    Parameters
    ----------
    settings : ExactSettings
    """

    STATE = (*BlocksLearner.STATE, "start")
    settings: ExactSettings

    def __init__(self, settings: ExactSettings) -> None:
        super().__init__(settings)
        self.start = StartingPoint.zero(settings.problems)

    def feed(self, order: RandomOrder, seeds: Ints) -> None:
        """Begin with the examples whose coefficients are given, or with `seeds`.

        Parameters
        ----------
        order : RandomOrder
        seeds : ndarray of int64
        """
        given = len(self.start) > 0
        super().feed(order, self.start.examples if given else seeds)
        self.all_new = self.all_new and not given

    def _process(self, result: CandidateBatch, plan: ScorePlan, arrivals: Ints) -> None:
        if self.phase == "seeding" and len(self.start):
            self._add_start(result)
        else:
            super()._process(result, plan, arrivals)

    def _view(self) -> View:
        if self.phase == "seeding" and len(self.start):
            return view_for_intake(self.applied, self.settings.problems)
        return super()._view()

    def _add_start(self, result: CandidateBatch) -> None:
        """Make examples whose coefficients are given members with α = 0; with the last of them, set all coefficients.

        In between, a run may be stopped, and the coefficients of a part of them do not add up to 0.
        """
        s, nothing = self.expansion, np.zeros_like(result.sign)
        s.make_room(result)
        s.add_members(result, nothing, nothing == 0, s.find_places(result.examples, None))
        if self.position < len(self.seeds):
            return
        w = s.working
        given = np.where(w.member[:, : s.places], self.start.of(s.example[: s.places]), 0.0)
        for p, alpha in enumerate(given):
            members, used = (np.flatnonzero(each) for each in (w.member[p, : s.places], alpha))
            g = np.where(w.member[p, : s.places], w.sign[p, : s.places], 0.0)
            s.subtract_computed(g, members, used, alpha[used])
            s.write(p, alpha, g)
        self._first_view = None

    def _round_rules(self, tau: float, size: int, *, shrink: bool) -> RoundRules:
        rules = self.settings.rules
        left = max(rules.limit - self.steps, 0)
        return RoundRules(tau, size, shrink and rules.shrinking, rules.selection, left)

    def _make_round(self) -> None:
        super()._make_round()
        if self._out_of_steps():
            self.position = self._length()

    def _finish(self) -> RowsPlan | None:
        if self.stopped:
            self.finishing[-1].stop()
        return super()._finish()

    def _after_finishing(self) -> None:
        if self.stopped or self._out_of_steps():
            self._begin_checking()
        else:
            super()._after_finishing()

    def _out_of_steps(self) -> bool:
        """Return whether the limit of steps is reached."""
        return self.steps + sum(finisher.steps for finisher in self.finishing) >= self.settings.rules.limit

    def ended_early(self) -> bool:
        """Return whether the limit of steps or a callback ended the run before it was complete."""
        return self.stopped or (not self.converged and self._out_of_steps())

    def _claims_convergence(self) -> bool:
        return super()._claims_convergence() and not self._out_of_steps()
