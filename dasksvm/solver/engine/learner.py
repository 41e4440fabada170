"""The base class of all solvers: a state machine that requests computations as plans and applies their results in order.

It has no clock, thread, file or network. `plans` returns the computations that are needed next, `take` applies the result of one
of them, and between two calls the whole state consists of arrays and scalars. A fixed number L of batches is in flight: batch i
is always scored against the state after batch i - L, however long each of them takes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.engine.choice import near_boundary
from dasksvm.solver.engine.criteria import RANDOM
from dasksvm.solver.engine.drift import GrowthEstimate
from dasksvm.solver.engine.finisher import Finisher, outcome_of
from dasksvm.solver.engine.selection import AS_GIVEN, Pools, RandomOrder
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.engine.tiles import excess
from dasksvm.solver.kernels.features import Flags, Ints
from dasksvm.solver.messages import CandidateBatch, MemberRows, Plan, Progress, Result, RowsPlan, ScorePlan, View
from dasksvm.solver.state.batch import ENTERED, SEEN, STEPS, Batch, finish_batch, make_batch
from dasksvm.solver.state.capture import Stateful
from dasksvm.solver.state.expansion import Expansion, Tools

LEAST_BATCH, LARGEST_BATCH = 64, 500
REFRESHES, MOST_EPOCHS = 5, 100
# An example is uncertain if it falls short of violating by less than this many times the largest error found in S, or by less
# than this many standard errors of rounding.
ERRORS_FOUND, ERRORS_EXPECTED = 4.0, 16.0
# An example whose violation is below -NEAR is skipped in the passes between two passes over the whole set.
NEAR = 0.5


class Learner(Stateful, ABC):
    """A solver as a state machine: seeding → online → finishing (→ surveying or online again, or checking) → done.

    This class decides what is requested and when the phases change. A solver implements the abstract methods. Two
    procedures that several solvers share take a solver's own functions as arguments: `_iterate` makes the online iterations of a
    batch, `_make_passes` makes further passes until no example violates.

    Parameters
    ----------
    settings : Settings
    """

    # The measure that `Progress.delta` holds.
    measure = "delta"
    # Not listed are the objects that are constructed with arguments when a state is restored: the order, the pools, the
    # finishers and the plans in flight. See `learner_state`.
    STATE: ClassVar[tuple[str, ...]] = (
        "phase",
        "epoch",
        "position",
        "next_sequence",
        "applied",
        "seen",
        "seen_before",
        "steps",
        "evaluations",
        "refreshes",
        "changed",
        "stopped",
        "converged",
        "all_new",
        "paused",
        "error",
        "violation",
        "extremes",
        "excess",
        "seeds",
        "queue",
        "drift",
        "expansion",
    )

    def __init__(self, settings: Settings) -> None:
        self.settings, self.phase = settings, "idle"
        self.epoch = self.position = self.next_sequence = self.applied = 0
        self.seen = self.seen_before = self.steps = self.evaluations = self.refreshes = 0
        self.expansion = self._expansion()
        self.changed = self.stopped = self.converged = self.all_new = self.paused = False
        self.excess = np.zeros(0, np.float32)
        self.order = RandomOrder((), AS_GIVEN)
        self.seeds: Ints = np.zeros(0, np.int64)
        self.queue: Ints | None = None
        self.drift = GrowthEstimate(settings.problems)
        self.pools: Pools | None = None
        self.inflight: dict[int, tuple[Plan, Ints]] = {}
        self.finishing: Sequence[Finisher] = []
        self.extremes: NDArray[np.float64] = np.zeros((settings.problems, 2))
        # The largest error of a gradient in S, found when the gradients were recomputed in float64; the largest violation of the
        # whole set, nan until it is known.
        self.error = 0.0
        self.violation: NDArray[np.float64] = np.full(settings.problems, np.nan)

    # What a solver implements

    @abstractmethod
    def _expansion(self) -> Expansion:
        """Return an empty expansion."""

    @abstractmethod
    def _process(self, result: CandidateBatch, plan: ScorePlan, arrivals: Ints) -> None:
        """Process a batch, except in the phase "checking"; `arrivals` are the members at the time of the request."""

    @abstractmethod
    def _measure_and_dual(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return `Progress.delta` and the dual of each problem, from the working gradients."""

    @abstractmethod
    def finisher(self, expansion: Expansion, problem: int, tau: float) -> Finisher:
        """Return the finisher of a problem of an expansion."""

    @abstractmethod
    def _finished_alpha(self) -> NDArray[np.float64] | None:
        """Return the coefficients that finishing has found; None before finishing."""

    @abstractmethod
    def _determine_bias(self) -> bool:
        """Determine the bias from the finished expansion; return False if that needs the gradients of the whole set."""

    @abstractmethod
    def _check_batch(self, result: CandidateBatch, plan: ScorePlan) -> None:
        """Use the decision values of a batch that was scored in the phase "checking"."""

    @abstractmethod
    def _conclude(self) -> None:
        """Set the bias and, if the run claims convergence, the largest violation of the whole set."""

    def _pause_due(self) -> bool:
        """Return whether the current members have to be finished before the pass continues."""
        return False

    def _after_finishing(self) -> None:
        """Begin what follows when all problems are finished: here the check."""
        self._begin_checking()

    # Phases

    def feed(self, order: RandomOrder, seeds: Ints) -> None:
        """Begin a pass over some examples: the whole set, or the examples of one `partial_fit`.

        Parameters
        ----------
        order : RandomOrder
        seeds : ndarray of int64
            A few examples of each class to begin with; empty if there is an expansion already.
        """
        self.order = order
        self.all_new = not np.any(self.expansion.examples() >= order.base)
        self.epoch = self.position = 0
        self.phase = "seeding" if len(seeds) else "online"
        self.finishing, self.seeds, self.queue = [], seeds, None
        self.seen_before, self.refreshes = self.seen, 0
        self.changed = self.stopped = self.converged = self.paused = False
        self.error, self.violation = 0.0, np.full(self.settings.problems, np.nan)
        selection = self.settings.selection
        self.pools = None if selection.criterion == RANDOM else Pools(order, selection)
        if self.pools is not None:
            self.pools.begin(np.union1d(seeds, self.expansion.examples()))
        if self.settings.epochs == 0:
            self.excess = np.full(len(order), np.inf, np.float32)

    def stop(self) -> None:
        """Request no more examples: the results in flight are still applied, then finishing follows."""
        self.epoch, self.position = max(self.settings.epochs - 1, 0), self._length()
        self.phase = "online" if self.phase == "seeding" else self.phase
        self.stopped = True

    def use_tools(self, tools: Tools) -> None:
        """Set what the process that runs the learner provides; the results do not depend on it."""
        self.expansion.tools = tools

    def use_memory(self, budget: int) -> None:
        """Set the bytes of kernel values that may be kept, instead of `cache_bytes`.

        Only solvers whose results do not depend on the budget use it; the others ignore it, as this does.
        """

    # Requests

    def plans(self) -> list[Plan]:
        """Return the plans that are needed now, in addition to those in flight; none when the run is done."""
        new: list[Plan] = []
        while True:
            while len(self.inflight) < self.settings.lookahead:
                plan = self._next_plan()
                if plan is None:
                    break
                new.append(self._put_in_flight(plan))
            if self.inflight or self.phase in ("idle", "done"):
                return new
            if self.phase == "finishing":
                rows_plan = self._finish()
                if rows_plan is not None:
                    new.append(self._put_in_flight(rows_plan))
            else:
                self._begin_next_phase()

    def _begin_next_phase(self) -> None:
        """Begin the next phase; nothing is in flight, and the current phase requests nothing more."""
        if self.phase == "online":
            self.phase = "finishing"
            self.begin_finishing(0)
        elif self.phase == "checking":
            self._end()
        else:
            raise ValueError(f"nothing follows the phase {self.phase!r}")

    def pending(self) -> list[Plan]:
        """Return the plans in flight, in sequence; an executor that takes over has to execute them again."""
        return [self.inflight[sequence][0] for sequence in sorted(self.inflight)]

    def _put_in_flight(self, plan: Plan) -> Plan:
        self.inflight[plan.sequence] = (plan, self.expansion.arrivals())
        self.next_sequence += 1
        return plan

    def _next_plan(self) -> ScorePlan | None:
        if self.pools is None or self.phase != "online":
            rows, choice = self._next_rows(), None
        else:
            if self.pools.free == 0 and not self.inflight and self._another_pass():
                self.epoch += 1
                self.pools.begin(self.expansion.examples())
            rows, choice = self.pools.draw_candidates(0 if self.stopped else self._examples_left())
        return ScorePlan(self.next_sequence, rows, self._view(), choice) if len(rows) else None

    def _examples_left(self) -> int:
        """Return how many more examples the budget allows, apart from those in flight."""
        requested = sum(plan.most_results for plan, _ in self.inflight.values() if isinstance(plan, ScorePlan))
        return max(self.settings.max_examples - (self.seen - self.seen_before) - requested, 0)

    def _next_rows(self) -> Ints:
        none = np.zeros(0, np.int64)
        if self.phase == "seeding":
            start = self.position
            self.position += 0 if self.inflight else LARGEST_BATCH
            return self.seeds[start : self.position]
        if self.phase not in ("online", "surveying", "checking") or self.paused:
            return none
        left = self._length() if self.phase == "checking" else self._examples_left()
        if self.position >= self._length() and self.phase == "online" and self._another_pass():
            self.epoch, self.position = self.epoch + 1, 0
        stop = min(self.position + self._batch_size(), self._length(), self.position + left)
        start, self.position = self.position, stop
        if stop <= start:
            return none
        return self.order.rows(self.epoch, start, stop) if self.queue is None else self.queue[start:stop]

    def _another_pass(self) -> bool:
        """Return whether another pass follows the current one."""
        return self.epoch + 1 < self.settings.epochs

    def _batch_size(self) -> int:
        """Return the number of examples of the next batch."""
        places, value = self.expansion.places, self.expansion.cache.pages.itemsize
        room = self.settings.inflight_bytes // ((self.settings.lookahead + 1) * value * max(places, 1))
        # With several problems, more examples become members of some problem, and a batch has to be updated for more of them.
        largest = LARGEST_BATCH if self.settings.problems == 1 else 3 * LARGEST_BATCH // 4
        # With many members, or if few of many examples became members, few candidates of a batch influence each other.
        preferred = int(np.clip(max(places // 4, self.seen // 64), LEAST_BATCH, largest))
        return max(min(preferred, room), LEAST_BATCH // 4)

    def _length(self) -> int:
        return len(self.order) if self.queue is None else len(self.queue)

    def _view(self) -> View:
        s, problems = self.expansion, self.settings.problems
        if self.phase == "checking":
            view = s.view(self.applied, self._finished_alpha(), np.full(problems, -np.inf), self.settings.tau)
            return replace(view, kernel_rows="unused", exact=self._claims_convergence())
        return s.view(self.applied, self._finished_alpha(), self._slack(), self.settings.tau)

    def _slack(self) -> NDArray[np.float64]:
        """Estimate, for each problem, by how much a violation may grow before a batch that is requested now is used."""
        return self.drift.current() if self.settings.filter else np.full(self.settings.problems, np.inf)

    # Results

    def take(self, result: Result) -> Progress:
        """Apply a result; results must be passed strictly in sequence."""
        if result.sequence != self.applied:
            raise ValueError(f"result {result.sequence} was passed, but {self.applied} was expected")
        plan, arrivals = self.inflight.pop(result.sequence)
        self.applied += 1
        if isinstance(result, MemberRows):
            assert isinstance(plan, RowsPlan)
            self.evaluations += result.rows.size
            finisher = self.finishing[-1]
            finisher.put(self.expansion, result.rows)
            finisher.solve(self.expansion)
        else:
            self.evaluations += result.evaluations
            if self.phase == "checking":
                assert isinstance(plan, ScorePlan)
                self._check_batch(result, plan)
            elif not self.stopped:
                assert isinstance(plan, ScorePlan)
                self._process(result, plan, arrivals)
            if self.phase == "seeding" and self.position >= len(self.seeds):
                self.phase, self.position = "online", 0
        return self.progress()

    def progress(self) -> Progress:
        """Return the state of the run as reported to users."""
        delta, dual = self._measure_and_dual()
        members = int(np.count_nonzero(self.expansion.working.holders))
        steps = self.steps + sum(finisher.steps for finisher in self.finishing)
        evaluations = self.evaluations + self.expansion.evaluations
        return Progress(self.phase, self.epoch, self.seen, members, steps, delta, dual, evaluations, self.measure)

    def _iterate(self, result: CandidateBatch, plan: ScorePlan, arrivals: Ints, run: Callable[[Batch], bool]) -> None:
        """Make the online iterations of a batch; `run` makes the steps and returns whether S has reached its largest size."""
        s = self.expansion
        if self.settings.epochs == 0 and self.phase == "online":
            violated = np.where(result.bound > 0, excess(plan.view, result.codes, result.sign, result.margins), -np.inf)
            self.excess[result.examples - self.order.base] = violated.max(axis=0)
        s.make_room(result)
        known = s.find_places(result.examples, self.seeds if self.all_new and self.epoch == 0 else None)
        batch = make_batch(s, result, arrivals, known)
        full = run(batch)
        finish_batch(s, result, batch)
        self.seen += int(batch.progress[:, SEEN].max()) if self.phase == "online" else 0
        self.steps += int(batch.progress[:, STEPS].sum())
        self.changed |= bool(batch.progress[:, ENTERED].any())
        self.paused |= self._pause_due() and not self.stopped
        if self.pools is not None and plan.choice is not None:
            far = near_boundary(plan.view)[:, None]
            with np.errstate(invalid="ignore"):  # inf - inf
                moved = ((s.scored_violations(result) - batch.excess) / far).ravel()
            self.pools.put_back(plan.rows, result.examples, result.sampled)
            assert s.store is not None
            room = self.settings.inflight_bytes / max(s.store.row_bytes(), 1.0)
            members = int(np.count_nonzero(s.working.holders))
            self.pools.adapt_batch_size(moved[np.isfinite(moved)], members, room, self.settings.lookahead)
        if self.phase == "online" and batch.excess.size:
            with np.errstate(invalid="ignore"):  # inf - inf
                moves = batch.excess - s.scored_violations(result)
            moves[:, batch.chosen] += np.nan_to_num(batch.growth)
            self.drift.record(moves)
        if full and not self.stopped:
            self.stop()

    def ended_early(self) -> bool:
        """Return whether a budget or a callback ended the run before it was complete."""
        seen = self.seen - self.seen_before
        available = len(self.order) * max(self.settings.epochs, 1)
        return self.stopped or (not self.converged and self.settings.max_examples <= seen < available)

    def solution(self) -> tuple[NDArray[np.float64], Ints, Ints, Ints]:
        """Return the support vectors by class and example: coefficients (P, S), classes, examples and slots (S,)."""
        s = self.expansion
        coefficients = outcome_of(self.finishing).coefficients
        places = s.support(coefficients)
        return coefficients[:, places], s.code[places], s.example[places], s.working.slot[places]

    # Finishing

    def begin_finishing(self, problem: int) -> None:
        """Begin to finish a problem; the problems before it are finished."""
        self.finishing = [*self.finishing, self.finisher(self.expansion, problem, self._finishing_tau())]

    def preview_tau(self) -> float:
        """Return the tolerance of finishing for an intermediate model."""
        return self.settings.tau

    def _finishing_tau(self) -> float:
        return self.settings.tau if self.settings.finish else np.inf

    def _finish(self) -> RowsPlan | None:
        """Begin the next round of finishing; return the plan of the rows that it needs, or None when a problem is finished.

        A plan is returned even if it has no rows, so that the caller is in control between two rounds.
        """
        finisher, s = self.finishing[-1], self.expansion
        if finisher.choose(s):
            return RowsPlan(self.next_sequence, finisher.missing(s), s.members(), finisher.order(s))
        if finisher.problem + 1 < self.settings.problems:
            self.begin_finishing(finisher.problem + 1)
        else:
            self._after_finishing()
        return None

    def _make_passes(self, adopt: Callable[[], None], verify: Callable[[], float]) -> None:
        """Continue the pass, begin another one, or, if no more passes are due, check the whole set.

        Parameters
        ----------
        adopt : callable
            Writes the finished coefficients to the expansion.
        verify : callable
            Computes the gradients of the members in float64, and returns the largest violation.
        """
        if self.paused:
            # A solution in the middle of a pass is not the result of the run.
            self._continue_from_finished(adopt)
            self.phase, self.paused = "finishing" if self.stopped else "online", False
            if self.stopped:
                self.begin_finishing(0)
            return
        if self.settings.epochs == 0 and not self.stopped and self.epoch < MOST_EPOCHS:
            if self.changed or not self._all_looked_at():
                self._next_pass(adopt)
                return
            if self.refreshes < REFRESHES and self._refresh(adopt, verify):
                return
        self._begin_checking()

    def _all_looked_at(self) -> bool:
        """Return whether the pass that has ended looked at all examples."""
        return self.queue is None

    def _claims_convergence(self) -> bool:
        """Return whether the run ends with a claim about the whole set, which it does not if it was stopped."""
        return self.settings.epochs == 0 and not self.stopped

    def _begin_checking(self) -> None:
        """Begin to score examples outside S: all of them if S does not determine the bias, or those that a claim depends on.

        For a claim, decision values are computed in float64.
        """
        determined = self._determine_bias()
        self.phase, self.epoch, self.position, self.queue = "checking", self.epoch + 1, 0, None
        if determined and self._claims_convergence() and self.converged:
            rows = self.order.rows(self.epoch, 0, len(self.order))
            self.queue = rows[self._uncertain_examples()[rows - self.order.base]]
        elif determined and not self._claims_convergence():
            self.queue = np.zeros(0, np.int64)
        if self._length() == 0:
            self._end()

    def _uncertain_examples(self) -> NDArray[np.bool_]:
        """Return which examples outside S may violate, given the possible error of their gradients, shape (n,)."""
        doubtful: NDArray[np.bool_] = (self.excess > -self._gradient_uncertainty()) & ~self._members_of_all_problems()
        return doubtful

    def _members_of_all_problems(self) -> NDArray[np.bool_]:
        """Return which examples are members of every problem, shape (n,). A member of some only may violate in the others."""
        s = self.expansion
        members = s.example[: s.places][s.is_member(np.arange(s.places)).all(axis=0)]
        inside = np.zeros(len(self.order), np.bool_)
        inside[members[members >= self.order.base] - self.order.base] = True
        return inside

    def _gradient_uncertainty(self) -> float:
        """Estimate the largest error of gradients outside S, from the largest error found in S and the expected rounding."""
        s, finished = self.expansion, self._finished_alpha()
        alpha = s.weights() if finished is None else finished
        scale = float(s.working.diagonal[: s.places].max(initial=0.0))
        expected = (
            float(np.finfo(s.members().dtype).eps) * scale * float(np.sqrt((alpha**2).sum(axis=1).max(initial=0.0)))
        )
        return max(ERRORS_FOUND * self.error, ERRORS_EXPECTED * expected)

    def _end(self) -> None:
        """End the run, and set whether it has converged."""
        self._conclude()
        self.converged = self._claims_convergence() and self.converged and self._violates_at_most(2 * self.settings.tau)
        self.phase = "done"

    def _violates_at_most(self, tolerance: float) -> bool:
        """Return whether no violation exceeds the tolerance, allowing for the error of the gradients."""
        return bool(self.violation.max() + self.error <= tolerance)

    def _next_pass(self, adopt: Callable[[], None]) -> None:
        """Begin another pass: over the examples near the margin while these cause changes, then over all examples."""
        near = self.changed and self.epoch > 0
        self._continue_from_finished(adopt)
        self.epoch, self.position, self.changed, self.phase = self.epoch + 1, 0, False, "online"
        self.queue = self.pools = None
        if near:
            rows = self.order.rows(self.epoch, 0, len(self.order))
            self.queue = rows[self._may_violate()[rows - self.order.base]]

    def _may_violate(self) -> Flags:
        """Return which examples may violate by now, shape (n,), from their violations when they were looked at."""
        near: Flags = self.excess > -NEAR
        return near

    def _continue_from_finished(self, adopt: Callable[[], None]) -> None:
        """Continue the run from the finished coefficients."""
        self.steps += sum(finisher.steps for finisher in self.finishing)
        adopt()
        self.finishing = []

    def _refresh(self, adopt: Callable[[], None], verify: Callable[[], float]) -> bool:
        """Recompute the members' gradients in float64; if they show a violation, finish again and return True."""
        self.refreshes, self.error = self.refreshes + 1, 0.0
        if verify() <= 2 * self.settings.tau:
            self.converged = True
            return False
        self._continue_from_finished(adopt)
        self.changed, self.phase = True, "finishing"
        self.begin_finishing(0)
        return True
