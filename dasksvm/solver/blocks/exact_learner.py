"""Decomposition in blocks: the rounds of the block engine until the whole set is solved, with the rules of the batch solvers.

It differs from `LaSVC(epochs="converged")` in what the user may choose: the coefficients to start from, the selection of pairs
within a working set (paper 4), its size, whether to shrink, and the number of steps.
"""

from dataclasses import dataclass

import numpy as np

from dasksvm.solver.blocks.learner import BlocksLearner, BlocksSettings
from dasksvm.solver.blocks.rounds import RoundRules
from dasksvm.solver.decomposition.rules import BlockRules, DecompositionSettings
from dasksvm.solver.decomposition.starting_point import StartingPoint
from dasksvm.solver.engine.selection import RandomOrder
from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.messages import CandidateBatch, RowsPlan, ScorePlan
from dasksvm.solver.state.working_arrays import refresh_extremes


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

    def _add_start(self, result: CandidateBatch) -> None:
        """Make examples whose coefficients are given members; with the last of them, compute all gradients."""
        s = self.expansion
        s.make_room(result)
        alpha = self.start.of(result.examples)
        s.add_members(result, alpha, np.ones(alpha.shape, np.bool_), s.find_places(result.examples, None))
        self._first_view = None
        if self.position < len(self.seeds):
            return
        w = s.working
        for p in range(self.settings.problems):
            members, used = (np.flatnonzero(each[p, : s.places]) for each in (w.member, w.alpha))
            g = w.sign[p, : s.places].copy()
            s.subtract_computed(g, members, used, w.alpha[p, used])
            w.g[p, : s.places] = g
            refresh_extremes(w, p)

    def _round_rules(self, tau: float, size: int, *, shrink: bool) -> RoundRules:
        rules = self.settings.rules
        left = max(rules.limit - self.steps, 0)
        return RoundRules(tau, size, shrink and rules.shrinking, rules.selection, left)

    def _make_round(self) -> None:
        super()._make_round()
        if self._out_of_steps():
            self.position = self._length()

    def _finish(self) -> RowsPlan | None:
        if self.stopped or self._out_of_steps():
            self._begin_checking()
            return None
        return super()._finish()

    def _out_of_steps(self) -> bool:
        """Return whether the limit of steps is reached."""
        return self.steps + sum(finisher.steps for finisher in self.finishing) >= self.settings.rules.limit

    def ended_early(self) -> bool:
        """Return whether the limit of steps or a callback ended the run before it was complete."""
        return self.stopped or (not self.converged and self._out_of_steps())

    def _claims_convergence(self) -> bool:
        return super()._claims_convergence() and not self._out_of_steps()
