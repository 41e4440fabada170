"""The learner of two-class problems that tracks their optimum by random coordinate steps (paper 3)."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.kernels.features import Features, Floats, Ints
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.lasvm.finishing import present_rows
from dasksvm.solver.messages import CandidateBatch, Progress, ScorePlan
from dasksvm.solver.state.batch import Batch, in_each_problem
from dasksvm.solver.state.expansion import Expansion
from dasksvm.solver.state.working_arrays import dual_objective
from dasksvm.solver.unbiased import tracking_steps
from dasksvm.solver.unbiased.learner import Held, UnbiasedLearner
from dasksvm.solver.unbiased.tracking_steps import COUNT, GAINED, SUM, TrackingRules

Values = NDArray[np.float64]
# Kernel rows that are computed as one tile; from which on a second thread is worth it; the share of the cache they may take.
FETCHED, SHARED, FETCHED_SHARE = 256, 8, 0.5


class TrackedExpansion(Expansion):
    """Members whose coefficients need not add up to 0, and the places of all examples by number.

    Parameters
    ----------
    kernel : Kernel
    problems : int
    cache_bytes : int
    rules : TrackingRules
    """

    band = True
    STATE = (*Expansion.STATE, "number", "place", "came", "tracks")

    def __init__(self, kernel: Kernel, problems: int, cache_bytes: int, rules: TrackingRules) -> None:
        super().__init__(kernel, problems, cache_bytes)
        self.rules = rules
        self.tracks = tracking_steps.empty_tracks(problems, rules.steps)
        # Number of each example by its id, -1: it has not come; place of each number, -1: it is not a member.
        self.number: Ints = np.zeros(0, np.int64)
        self.place: Ints = np.zeros(0, np.int64)
        # Examples that came, counting those who came again each time, and without them.
        self.came: Ints = np.zeros(2, np.int64)
        self._numbers: Ints = np.zeros(0, np.int64)
        self._known: Ints = np.zeros(0, np.int64)

    def limits(self) -> tuple[Values, Values]:
        """Every example enters, or those that a step would move."""
        problems = len(self.working.alpha)
        return np.full(problems, np.inf), np.full(problems, 0.0 if self.rules.support else -np.inf)

    def judge(self, result: CandidateBatch, at: Ints, found: Values) -> tuple[Values, Values]:
        """1 - y f of the examples `at` of a batch, and what is kept of them: their gradients."""
        gradient = result.sign[:, at] - found
        return result.sign[:, at] * gradient, gradient

    def scored(self, result: CandidateBatch) -> Values:
        """1 - y f of the rows that came when they were scored."""
        at = result.row_of >= 0
        lacking: Values = 1.0 - result.sign[:, at] * result.margins[:, at]
        return lacking

    def make_room(self, result: CandidateBatch) -> None:
        """Grow the arrays for a batch, whose examples get numbers if they have none."""
        super().make_room(result)
        ids = result.examples
        lacking = max(int(ids.max(initial=-1)) + 1 - len(self.number), 0)
        if lacking:
            room = max(lacking, len(self.number) // 2)
            self.number = np.concatenate([self.number, np.full(room, -1)])
        new = self.number[ids] < 0
        known = self.came[1] + np.cumsum(new)
        self.number[ids[new]] = known[new] - 1
        if len(ids) and known[-1] > len(self.place):
            self.place = np.concatenate([self.place, np.full(max(int(known[-1]), 1024), -1)])
        self._numbers, self._known = self.number[ids], known

    def picks(self, batch: Batch, seed: int) -> Ints:
        """Draw the picks of a batch, and compute the kernel rows that they will need, as far as can be foreseen.

        Gradients change under way: what is missed is computed row by row. To look again at each miss makes fewer tiles of many
        rows that are not used after all.
        """
        candidates = (batch.known < 0) & (batch.row_of >= 0)
        self.place[self._numbers[candidates]] = batch.base + batch.row_of[candidates]
        picked: Ints = tracking_steps.pick(seed, int(self.came[0]), self._known, self.rules.steps, self.place)
        self.came[:] = self.came[0] + len(self._numbers), self._known[-1]
        most = int(FETCHED_SHARE * len(self.cache.pages)) // self.cache.table.shape[1]
        places = tracking_steps.wanted(self.working, self.rules.support, picked, batch.base)
        self.fetch(present_rows(self.cache, places)[:most])
        return picked

    def fetch(self, places: Ints) -> None:
        """Compute the kernel rows of some members in the middle of a batch, as tiles."""
        members, order = self.members(), self.order()
        for start in range(0, len(places), FETCHED):
            some = places[start : start + FETCHED]
            rows = self.workspace.array("fetched", (len(some), len(order)), members.dtype)
            self.share(partial(self._fill, members.take(order[some]), rows), len(some), SHARED)
            rows[np.arange(len(some)), some] = self.working.diagonal[some]
            self.put_rows(self.cache, some, rows)
            self.evaluations += rows.size

    def _fill(self, own: Features, rows: Floats, part: tuple[int, int]) -> None:
        self.kernel.tile(own.part(*part), self.members(), self.order(), rows[slice(*part)])

    def _free(self) -> Ints:
        freed = super()._free()
        self.place[self.number[self.example[freed]]] = -1
        return freed

    def settle(self, base: int, count: int) -> tuple[Ints, Ints]:
        """Give places to the members in the first seats, and follow them."""
        seats, places = super().settle(base, count)
        moved = np.full(count, -1, np.int64)
        moved[seats] = places
        seated = self._numbers[self.place[self._numbers] >= base]
        self.place[seated] = moved[self.place[seated] - base]
        away = self.tracks.places
        for p, entries in enumerate(self.tracks.count):
            some = away[p, :entries]
            some[some >= base] = moved[some[some >= base] - base]
        return seats, places


class Tracked(Held):
    """What there is to finish of a problem: nothing; its coefficients are the average of the last iterates.

    Parameters
    ----------
    expansion : TrackedExpansion
    problem : int
    """

    def __init__(self, expansion: TrackedExpansion, problem: int) -> None:
        super().__init__(expansion, problem)
        self.alpha = tracking_steps.averaged(expansion.working, expansion.tracks, problem, expansion.places)
        self.gap = tracking_steps.standing(expansion.working, problem)


@dataclass(frozen=True, kw_only=True)
class TrackingSettings(Settings):
    """What defines a run of algorithm 1 or 2.

    Attributes
    ----------
    rules : TrackingRules
    """

    converges = False
    rules: TrackingRules


class TrackingLearner(UnbiasedLearner):
    """Algorithm 1 or 2 on one problem, or on several that share the kernel rows and the picks.

    Parameters
    ----------
    settings : TrackingSettings
    """

    settings: TrackingSettings
    expansion: TrackedExpansion

    def _expansion(self) -> Expansion:
        s = self.settings
        return TrackedExpansion(s.kernel, s.problems, s.cache_bytes, s.rules)

    def _process(self, result: CandidateBatch, plan: ScorePlan, arrivals: Ints) -> None:
        self._iterate(result, plan, arrivals, self._run)

    def _run(self, batch: Batch) -> bool:
        s, rules, most = self.expansion, self.settings.rules, self.settings.max_support
        picked = s.picks(batch, self.settings.seed)
        return in_each_problem(
            s, batch, lambda p: tracking_steps.run(s.working, s.cache, batch, rules, most, picked, s.tracks, p)
        )

    def progress(self) -> Progress:
        """Say where the run stands, with the mean gap so far and, where it is known, its bound."""
        s, found = self.expansion, super().progress()
        now, w = s.tracks.now, s.working
        with np.errstate(invalid="ignore"):
            more = {"mean_gap": np.nan_to_num(now[:, SUM] / now[:, COUNT])}
        sizes = (w.upper - w.lower)[:, : s.places]
        C = sizes.max(axis=1, initial=0.0)
        alike = np.all(w.count[:, 0] == s.came[1]) and np.all((sizes == C[:, None]) | (sizes == 0.0))
        if self.settings.kernel.formula.unit_diagonal and not self.settings.rules.support and s.came[1] and alike:
            more["bound"] = tracking_steps.tracking_bound(
                found.dual - now[:, GAINED], now[:, COUNT] * self.settings.rules.steps, C
            )
        return replace(found, more=more)

    def _standing(self) -> tuple[Values, Values]:
        w = self.expansion.working
        return np.array([tracking_steps.standing(w, p) for p in range(len(w.alpha))]), dual_objective(w)

    def finisher(self, expansion: Expansion, problem: int, tau: float) -> Tracked:
        """Return a finisher that only gives the average of the last iterates."""
        assert isinstance(expansion, TrackedExpansion)
        return Tracked(expansion, problem)
