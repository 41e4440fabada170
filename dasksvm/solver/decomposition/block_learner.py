"""Decomposition in blocks: the exact SVM of data that need not fit in memory.

Finishing solves the problem restricted to S, in blocks (`lasvm.finishing`). The learner alternates between finishing and
*checks*. A check computes the gradients of examples outside S on the workers; examples that violate, or nearly do, become
members, and S is solved again. S grows step by step: first some examples in the order of the run are solved, then those that
violate among twice as many examples, and so on.

A check can skip examples. Between two solutions the weight vector w of the SVM moves by d = |w - w'| with
d² = Δα·KΔα = -Δα·Δg over S, and no decision value changes by more than d √K(x, x). An example that is further from violating
than w has moved since the example was last checked cannot violate. While the solutions still change much, a weaker rule is used:
examples are skipped if they are further from violating than gradients of members have typically moved. The last checks use the
strict rule, so that in the end no example violates.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.decomposition.batch_learner import BatchLearner
from dasksvm.solver.decomposition.block_pairs import solve_by_pairs
from dasksvm.solver.decomposition.intake import RowlessExpansion
from dasksvm.solver.decomposition.pair_state import number_of
from dasksvm.solver.decomposition.rules import BlockRules, BlockSettings
from dasksvm.solver.engine.learner import REFRESHES
from dasksvm.solver.engine.selection import RandomOrder
from dasksvm.solver.kernels.features import Floats, Ints, Values
from dasksvm.solver.lasvm.finishing import INNER_STEPS, WORKING_SET, LasvmFinisher, solve_block
from dasksvm.solver.messages import CandidateBatch, RowsPlan, ScorePlan, View
from dasksvm.solver.state.expansion import Expansion
from dasksvm.solver.state.working_arrays import Working, refresh_extremes

# Number of examples that are used first; factor by which their number grows; number of examples that are checked as one batch.
FIRST, GROWTH, CHECK_ROWS = 1000, 2, 2048
# Tolerance to which S is solved until all examples have been used; tolerance while many members are new; the share of new members
# that counts as many.
COARSE, MEDIUM, FEW_NEW = 0.5, 0.1, 0.02
# Quantiles of the changes of the members' gradients: the margin within which examples that nearly violate become members, and
# the typical change.
MEDIAN, MOST = 0.5, 0.9
# Rules by which a check skips examples: further away than the typical change, or than w has moved.
TYPICAL, CERTAIN = 0, 1


class BlockFinisher(LasvmFinisher):
    """The finisher of the problem restricted to S, with rules for the choice of pairs, the block size and the number of steps.

    Parameters
    ----------
    working : Working
    problem : int
    tau : float
    rules : BlockRules
    """

    def __init__(self, working: Working, problem: int, tau: float, rules: BlockRules) -> None:
        super().__init__(working, problem, tau)
        self.rules = rules
        self.size = rules.size or WORKING_SET

    def _solve_working_set(self, values: Floats, alpha: Values, target: float) -> int:
        chosen, rules = self.chosen, self.rules
        g, lower, upper = self.g[chosen], self.lower[chosen], self.upper[chosen]
        limit = min(INNER_STEPS * len(chosen), max(rules.limit - self.steps, 0))
        steps = solve_by_pairs(values, alpha, g, lower, upper, target, limit, number_of(rules.selection), False)
        # If maximum gain stalls at once, only a pair chosen in another way makes progress.
        return steps or solve_block(values, alpha, g, lower, upper, target, limit)

    def _shrink(self, expansion: Expansion) -> None:
        if self.rules.shrinking:
            super()._shrink(expansion)


class BlockLearner(BatchLearner):
    """Decomposition in blocks on one problem, or on several that share the kernel rows.

    Parameters
    ----------
    settings : BlockSettings
    """

    STATE = (
        *BatchLearner.STATE,
        "gradient",
        "weight",
        "path_when_checked",
        "path",
        "checked_extremes",
        "entry_margin",
        "reached",
        "entered",
        "check_kind",
        "final_check",
        "final_checks",
    )
    settings: BlockSettings
    expansion: RowlessExpansion
    finishing: Sequence[BlockFinisher]

    def _solved_problems(self) -> Sequence[BlockFinisher]:
        return self.finishing

    def _expansion(self) -> Expansion:
        return RowlessExpansion(self.settings.kernel, self.settings.problems, self.settings.cache_bytes)

    def __init__(self, settings: BlockSettings) -> None:
        super().__init__(settings)
        self._reset_checks(0)

    def feed(self, order: RandomOrder, seeds: Ints) -> None:
        """Begin with the examples whose coefficients are given, or with `seeds`.

        Parameters
        ----------
        order : RandomOrder
        seeds : ndarray of int64
        """
        super().feed(order, self.start_examples if len(self.start_examples) else seeds)
        self._reset_checks(len(order))

    def _reset_checks(self, count: int) -> None:
        problems = self.settings.problems
        # For each example that was checked: its gradient, C_i with the sign of its label, and the value of `path` at that time.
        self.gradient: Values = np.zeros((problems, count))
        self.weight: Values = np.zeros((problems, count))
        self.path_when_checked = np.full((2, problems, count), -np.inf)
        # Sum of the changes of the solutions so far: of gradients (typical change), and of w.
        self.path: Values = np.zeros((2, problems))
        # The extremes at the last check, and how far from violating an example may be to become a member.
        self.checked_extremes: Values = np.tile([-np.inf, np.inf], (problems, 1))
        self.entry_margin: Values = np.zeros(problems)
        # Number of examples used so far; members that entered in the last check; the rule by which it skips examples; whether it
        # is a final check, in float64, which a claim is based on; number of final checks.
        self.reached = self.entered = self.check_kind = self.final_check = self.final_checks = 0

    def stop(self) -> None:
        """Request no more examples, and make no more steps."""
        self.stopped = True

    # Requests

    def _begin_next_phase(self) -> None:
        match self.phase:
            case "online":
                self._compute_member_gradients()
                self.reached = len(self.order) if len(self.start_examples) else 0
            case "finishing" | "checking":
                pass
            case _:
                raise ValueError(f"a run in the phase {self.phase!r} has nothing to finish yet.")
        self.phase = "finishing"
        self.begin_finishing(0)

    def _next_rows(self) -> Ints:
        if self.phase == "seeding":
            return super()._next_rows()
        if self.phase != "checking" or self.stopped:
            return np.zeros(0, np.int64)
        assert self.queue is not None
        start, self.position = self.position, min(self.position + CHECK_ROWS, len(self.queue))
        return self.queue[start : self.position]

    def _view(self) -> View:
        """Return a view with the support vectors only, and the margin within which examples become members."""
        near = np.full_like(self.entry_margin, np.inf) if self.phase == "seeding" else self._margin_in_force()
        view = self.expansion.view(self.applied, None, near, 0.0)
        used, needed_classes = np.flatnonzero(np.any(view.alpha != 0.0, axis=0)), np.ones_like(view.needed_classes)
        top, bottom = self.checked_extremes.T
        return replace(
            view,
            order=view.order[used],
            alpha=view.alpha[:, used],
            top=top,
            bottom=bottom,
            needed_classes=needed_classes,
            kernel_rows="unused",
            exact=bool(self.final_check),
        )

    def _margin_in_force(self) -> Values:
        """Return how far from violating an example may be to become a member; in a final check it must exceed the tolerance."""
        return np.full_like(self.entry_margin, -self.settings.tau) if self.final_check else self.entry_margin

    # Results

    def _check_batch(self, result: CandidateBatch, plan: ScorePlan) -> None:
        """Record the gradients of a batch; its examples that violate, or nearly do, become members."""
        at = result.examples - self.order.base
        self.gradient[:, at] = result.sign - result.margins
        self.path_when_checked[:, :, at] = self.path[:, :, None]
        self.weight[:, at] = result.sign * result.bound
        if not self.stopped:
            self.expansion.make_room(result)
            selected = self._violations(at) > -self._margin_in_force()[:, None]
            known = self.expansion.find_places(result.examples, None)
            self.expansion.add_members(result, np.zeros_like(result.margins), selected, known)
            self.entered += len(result.features)

    def _process(self, result: CandidateBatch, plan: ScorePlan, arrivals: Ints) -> None:
        """Make the first examples members."""
        self.expansion.make_room(result)
        alpha = self.start_alpha_of(result.examples)
        known = self.expansion.find_places(result.examples, None)
        self.expansion.add_members(result, alpha, np.ones(alpha.shape, np.bool_), known)

    def _compute_member_gradients(self) -> None:
        """Compute the gradients of the first members, whose coefficients may not be 0."""
        s = self.expansion
        w = s.working
        for p in range(self.settings.problems):
            members = np.flatnonzero(w.member[p, : s.places])
            moved = members[w.alpha[p, members] != 0]
            g = w.sign[p, : s.places].copy()
            if len(moved):
                s.subtract_computed(g, members, moved, w.alpha[p, moved])
            w.g[p, : s.places] = g
            refresh_extremes(w, p)

    # Alternating between finishing and checks

    def finisher(self, expansion: Expansion, problem: int, tau: float) -> BlockFinisher:
        """Return the finisher of a problem."""
        rules = self.settings.rules
        left = max(rules.limit - self.steps - sum(finisher.steps for finisher in self.finishing), 0)
        return BlockFinisher(expansion.working, problem, tau, rules._replace(limit=left))

    def _finishing_tau(self) -> float:
        tau = self.settings.tau
        if self.reached < len(self.order):
            return max(COARSE, tau)
        members = np.count_nonzero(self.expansion.working.holders)
        return max(MEDIUM, tau) if self.entered > FEW_NEW * members else tau

    def _finish(self) -> RowsPlan | None:
        if self.stopped or self._out_of_steps():
            self._end()
            return None
        return super()._finish()

    def _end(self) -> None:
        while len(self.finishing) < self.settings.problems:
            self.begin_finishing(len(self.finishing))
        self._determine_bias()
        self._record_outside()
        self._conclude()
        at_rest = not (self.stopped or self._out_of_steps())
        self.converged, self.phase = at_rest and self._violates_at_most(self.settings.tau), "done"

    def _out_of_steps(self) -> bool:
        """Return whether the limit of steps is reached."""
        rules = self.settings.rules
        return bool(self.steps + sum(finisher.steps for finisher in self.finishing) >= rules.limit)

    def _after_finishing(self) -> None:
        idle = all(finisher.rounds == 0 for finisher in self.finishing)
        at_rest = idle and self.check_kind == CERTAIN and not self.entered
        if self.final_check and (at_rest or self.final_checks > REFRESHES):
            self._end()
            return
        self.final_check = int(at_rest and self._verify_members())
        self.final_checks += self.final_check
        if self.final_check and not self._determine_bias():
            # The bias lies between gradients of the whole set.
            self.path_when_checked[:] = -np.inf
        for finisher in self.finishing:
            self._record_solution(finisher)
        self._continue_from_finished(self._adopt)
        again, self.entered = idle and self.entered > 0, 0
        if again:
            # The new members do not violate at the tolerance used, but that may have been too coarse.
            self._begin_next_phase()
        else:
            self.check_kind = CERTAIN if idle and self.reached == len(self.order) else TYPICAL
            self._check_more_examples()

    def _record_solution(self, finisher: LasvmFinisher) -> None:
        """Record how far a solution has moved w and gradients, and the gradients of the members."""
        s, p = self.expansion, finisher.problem
        w, places = s.working, np.flatnonzero(finisher.member)
        moves = (finisher.g - w.g[p, : len(finisher.g)])[places]
        median, most = np.quantile(np.abs(moves), [MEDIAN, MOST]) if len(places) else (0.0, 0.0)
        squared = -(finisher.alpha - w.alpha[p, : len(finisher.alpha)])[places] @ moves
        self.path[:, p] += most, np.sqrt(max(squared, 0.0))
        self.entry_margin[p] = median if self.reached == len(self.order) else 0.0
        at = s.example[places] - self.order.base
        self.gradient[p, at] = finisher.g[places]
        self.weight[p, at] = w.sign[p, places] * (finisher.upper - finisher.lower)[places]
        self.path_when_checked[:, p, at] = self.path[:, p, None]

    def _adopt(self) -> None:
        for finisher in self.finishing:
            self.expansion.adopt(finisher.problem, finisher.alpha, finisher.g, self.entry_margin[finisher.problem])
        self.expansion.compact()

    def _check_more_examples(self) -> None:
        """Begin a check: of as many unused examples as were used so far or, if all were used, of those that may violate."""
        self.checked_extremes = np.stack(self.expansion.entry_limits(), axis=1)
        start, self.reached = self.reached, min(max(GROWTH * self.reached, FIRST), len(self.order))
        self.seen = self.reached
        if start < self.reached:
            self.queue = self.order.rows(0, start, self.reached)
        else:
            self.epoch += 1
            rows = self.order.rows(self.epoch, 0, len(self.order))
            self.queue = rows[self._examples_to_check()[rows - self.order.base]]
        self.phase, self.position = "checking", 0

    def _verify_members(self) -> bool:
        """Recompute the gradients of members near the extremes in float64; return whether they show no violation.

        After REFRESHES calls the result is always True.
        """
        self.refreshes += 1
        worst = self.error = 0.0
        for finisher in self.finishing:
            g, error = self.expansion.corrected_gradients(
                finisher.problem, finisher.g, finisher.alpha, finisher.extremes()
            )
            finisher.set_gradients(g, self.expansion.working.sign[finisher.problem, : len(g)])
            self.error = max(self.error, error)
            top, bottom = finisher.extremes()
            worst = max(worst, top - bottom)
        return self.refreshes >= REFRESHES or worst / 2 + self.error <= self.settings.tau

    def _record_outside(self) -> None:
        """Write the gradients outside S to `outside`, from which the bias and the violation are computed."""
        outside = self._outside()
        rising = np.where(outside & (self.weight > 0), self.gradient, -np.inf).max(axis=1)
        falling = np.where(outside & (self.weight < 0), self.gradient, np.inf).min(axis=1)
        self.outside.extremes = np.stack([rising, falling], axis=1)
        self.outside.gradient, self.outside.weight = self.gradient, np.where(outside, self.weight, 0.0)

    def _outside(self) -> NDArray[np.bool_]:
        """Return which examples have been checked and are not members, shape (P, n)."""
        s = self.expansion
        live = np.flatnonzero(s.working.holders[: s.places])
        found: NDArray[np.bool_] = ~np.isneginf(self.path_when_checked[CERTAIN])
        found[:, s.example[live] - self.order.base] &= ~s.working.member[:, live]
        return found

    def _violations(self, at: Ints | slice) -> Values:
        """Return by how much examples violated when they were checked; -inf if they are not part of the problem."""
        top, bottom = self.checked_extremes.T
        gradient, weight = self.gradient[:, at], self.weight[:, at]
        found = np.where(weight > 0, gradient - bottom[:, None], top[:, None] - gradient)
        return np.where(weight == 0, -np.inf, found)

    def _examples_to_check(self) -> NDArray[np.bool_]:
        """Return which examples have to be checked, shape (n,): those never checked, and those that may violate by now."""
        far = self.path[self.check_kind, :, None] - self.path_when_checked[self.check_kind]
        if self.check_kind == CERTAIN and not self.settings.kernel.formula.unit_diagonal:
            # Decision values change by up to d √K(x, x), which is d only if K(x, x) = 1.
            far[far > 0] = np.inf
        if self.final_check:
            far += self._gradient_uncertainty()
        unknown = np.isneginf(self.path_when_checked[CERTAIN])
        doubtful: NDArray[np.bool_] = unknown | (self._outside() & (self._violations(slice(None)) > -far))
        return np.asarray(doubtful.any(axis=0))
