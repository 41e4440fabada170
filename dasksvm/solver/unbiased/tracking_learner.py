"""The learner that tracks the optimum of two-class problems by random coordinate steps (paper 3)."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.kernels.features import Features, Floats, Ints, Values
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.lasvm.finishing import find_missing_rows
from dasksvm.solver.messages import CandidateBatch, Progress, ScorePlan
from dasksvm.solver.state.batch import Batch, in_each_problem
from dasksvm.solver.state.expansion import Expansion
from dasksvm.solver.state.working_arrays import dual_objective
from dasksvm.solver.unbiased import tracking_steps
from dasksvm.solver.unbiased.learner import IdleFinisher, UnbiasedLearner
from dasksvm.solver.unbiased.tracking_steps import COUNT, GAINED, SUM, TrackingRules

# Kernel rows that are computed as one tile; rows per thread from which a second thread is worth it; the largest share of the
# cache that they may take.
TILE_ROWS, PARALLEL_ROWS, CACHE_SHARE = 256, 8, 0.5


class TrackingExpansion(Expansion):
    """An expansion without the constraint that coefficients add up to 0, which knows the places of all examples by number.

    Parameters
    ----------
    kernel : Kernel
    problems : int
    cache_bytes : int
    rules : TrackingRules
    """

    band = True
    STATE = (*Expansion.STATE, "number_of", "place_of", "arrived", "tracking")

    def __init__(self, kernel: Kernel, problems: int, cache_bytes: int, rules: TrackingRules) -> None:
        super().__init__(kernel, problems, cache_bytes)
        self.rules = rules
        self.tracking = tracking_steps.empty_tracking_state(problems, rules.steps)
        # Number of each example by its id (-1: it has not arrived); place of each number (-1: it is not a member).
        self.number_of: Ints = np.zeros(0, np.int64)
        self.place_of: Ints = np.zeros(0, np.int64)
        # Examples that have arrived: with repetitions, and without.
        self.arrived: Ints = np.zeros(2, np.int64)
        self._batch_numbers: Ints = np.zeros(0, np.int64)
        self._batch_arrived: Ints = np.zeros(0, np.int64)

    def entry_limits(self) -> tuple[Values, Values]:
        """Return limits by which every example enters or, with `support`, those that a step would move."""
        problems = len(self.working.alpha)
        return np.full(problems, np.inf), np.full(problems, 0.0 if self.rules.support else -np.inf)

    def violations_and_state(self, result: CandidateBatch, at: Ints, found: Values) -> tuple[Values, Values]:
        """Return 1 - y f of the examples `at` of a batch, and the state to store for them: their gradients."""
        gradient = result.sign[:, at] - found
        return result.sign[:, at] * gradient, gradient

    def scored_violations(self, result: CandidateBatch) -> Values:
        """Return 1 - y f of the result's rows at the version that they were scored against."""
        at = result.row_of >= 0
        shortfall: Values = 1.0 - result.sign[:, at] * result.margins[:, at]
        return shortfall

    def make_room(self, result: CandidateBatch) -> None:
        """Grow the arrays for a batch, and number its examples that have no number yet."""
        super().make_room(result)
        ids = result.examples
        missing = max(int(ids.max(initial=-1)) + 1 - len(self.number_of), 0)
        if missing:
            room = max(missing, len(self.number_of) // 2)
            self.number_of = np.concatenate([self.number_of, np.full(room, -1)])
        new = self.number_of[ids] < 0
        arrived = self.arrived[1] + np.cumsum(new)
        self.number_of[ids[new]] = arrived[new] - 1
        if len(ids) and arrived[-1] > len(self.place_of):
            self.place_of = np.concatenate([self.place_of, np.full(max(int(arrived[-1]), 1024), -1)])
        self._batch_numbers, self._batch_arrived = self.number_of[ids], arrived

    def draw_picks(self, batch: Batch, seed: int) -> Ints:
        """Draw the picks of a batch, and compute the kernel rows that they will probably need.

        Which rows are needed depends on gradients that change while the batch is processed. Rows that turn out to be missing are
        computed one by one.
        """
        candidates = (batch.place_of < 0) & (batch.row_of >= 0)
        self.place_of[self._batch_numbers[candidates]] = batch.base + batch.row_of[candidates]
        picked: Ints = tracking_steps.draw_picks(
            seed, int(self.arrived[0]), self._batch_arrived, self.rules.steps, self.place_of
        )
        self.arrived[:] = self.arrived[0] + len(self._batch_numbers), self._batch_arrived[-1]
        fitting = int(CACHE_SHARE * len(self.cache.pages)) // self.cache.table.shape[1]
        places = tracking_steps.movable_picks(self.working, self.rules.support, picked, batch.base)
        self.compute_rows(find_missing_rows(self.cache, places)[:fitting])
        return picked

    def compute_rows(self, places: Ints) -> None:
        """Compute and cache the kernel rows of some members while a batch is processed, as tiles."""
        members, order = self.members(), self.order()
        for start in range(0, len(places), TILE_ROWS):
            some = places[start : start + TILE_ROWS]
            rows = self.workspace.array("fetched", (len(some), len(order)), members.dtype)
            self.in_halves(partial(self._fill, members.take(order[some]), rows), len(some), PARALLEL_ROWS)
            rows[np.arange(len(some)), some] = self.working.diagonal[some]
            self.put_rows(self.cache, some, rows)
            self.evaluations += rows.size

    def _fill(self, own: Features, rows: Floats, part: tuple[int, int]) -> None:
        self.kernel.tile(own.part(*part), self.members(), self.order(), rows[slice(*part)])

    def _free_places(self) -> Ints:
        freed = super()._free_places()
        self.place_of[self.number_of[self.example[freed]]] = -1
        return freed

    def assign_places(self, base: int, count: int) -> tuple[Ints, Ints]:
        """Move the members in the first `count` seats to places, and update what refers to the seats."""
        seats, places = super().assign_places(base, count)
        moved = np.full(count, -1, np.int64)
        moved[seats] = places
        seated = self._batch_numbers[self.place_of[self._batch_numbers] >= base]
        self.place_of[seated] = moved[self.place_of[seated] - base]
        away = self.tracking.places
        for p, entries in enumerate(self.tracking.counts):
            some = away[p, :entries]
            some[some >= base] = moved[some[some >= base] - base]
        return seats, places


class AverageFinisher(IdleFinisher):
    """A finisher that makes no steps; its coefficients are the average of the last iterates.

    Parameters
    ----------
    expansion : TrackingExpansion
    problem : int
    """

    def __init__(self, expansion: TrackingExpansion, problem: int) -> None:
        super().__init__(expansion, problem)
        self.alpha = tracking_steps.average_alpha(expansion.working, expansion.tracking, problem, expansion.places)
        self.gap = tracking_steps.normalised_gap(expansion.working, problem)


@dataclass(frozen=True, kw_only=True)
class TrackingSettings(Settings):
    """The settings of algorithms 1 and 2.

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
    expansion: TrackingExpansion

    def _expansion(self) -> Expansion:
        s = self.settings
        return TrackingExpansion(s.kernel, s.problems, s.cache_bytes, s.rules)

    def _process(self, result: CandidateBatch, plan: ScorePlan, arrivals: Ints) -> None:
        self._iterate(result, plan, arrivals, self._make_steps)

    def _make_steps(self, batch: Batch) -> bool:
        s, rules, max_support = self.expansion, self.settings.rules, self.settings.max_support
        picked = s.draw_picks(batch, self.settings.seed)
        return in_each_problem(
            s,
            batch,
            lambda p: tracking_steps.process_batch(
                s.working, s.cache, batch, rules, max_support, picked, s.tracking, p
            ),
        )

    def progress(self) -> Progress:
        """Return the state of the run, with the mean gap so far and, if it is known, its bound."""
        s, found = self.expansion, super().progress()
        status, w = s.tracking.status, s.working
        with np.errstate(invalid="ignore"):
            more = {"mean_gap": np.nan_to_num(status[:, SUM] / status[:, COUNT])}
        sizes = (w.upper - w.lower)[:, : s.places]
        C = sizes.max(axis=1, initial=0.0)
        alike = np.all(w.counts[:, 0] == s.arrived[1]) and np.all((sizes == C[:, None]) | (sizes == 0.0))
        if self.settings.kernel.formula.unit_diagonal and not self.settings.rules.support and s.arrived[1] and alike:
            more["bound"] = tracking_steps.tracking_bound(
                found.dual - status[:, GAINED], status[:, COUNT] * self.settings.rules.steps, C
            )
        return replace(found, more=more)

    def _measure_and_dual(self) -> tuple[Values, Values]:
        w = self.expansion.working
        return np.array([tracking_steps.normalised_gap(w, p) for p in range(len(w.alpha))]), dual_objective(w)

    def finisher(self, expansion: Expansion, problem: int, tau: float) -> AverageFinisher:
        """Return a finisher that only gives the average of the last iterates."""
        assert isinstance(expansion, TrackingExpansion)
        return AverageFinisher(expansion, problem)
