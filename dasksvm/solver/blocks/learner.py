"""The learner that trains two-class problems in blocks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dasksvm.solver.blocks.admission import admission_levels, bounded_share
from dasksvm.solver.blocks.expansion import BlockExpansion
from dasksvm.solver.blocks.keeping import can_keep
from dasksvm.solver.blocks.kernel_values import KnownRows
from dasksvm.solver.blocks.pieces import sums, sums_of_known
from dasksvm.solver.blocks.rounds import NOBODY, Part, RoundRules, Rounds
from dasksvm.solver.blocks.survey import Survey
from dasksvm.solver.engine.learner import LEAST_BATCH, NEAR
from dasksvm.solver.engine.selection import RandomOrder
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.engine.tiles import excess, pair_violations
from dasksvm.solver.kernels.features import Flags, Ints, Values
from dasksvm.solver.kernels.uniform import TILE_ROWS
from dasksvm.solver.lasvm.biased_learner import BiasedLearner
from dasksvm.solver.messages import CandidateBatch, Plan, Rows, ScorePlan, View
from dasksvm.solver.state.expansion import SEEDS, Expansion
from dasksvm.solver.state.working_arrays import evict_beyond, find_needed_classes

BATCH, WORKING_SET = 2000, 1024
# In finishing the working set grows with S, so that there are not too many rounds: to a problem's members divided by SET_PART,
# but at most to LARGEST_SET times the size that it has otherwise.
SET_PART, LARGEST_SET = 16, 4
# Violation of pairs within S at which rounds end if the run ends when no pair violates by more than 2τ, as a multiple of τ; the
# rest is for rounding errors.
WITHIN = 1.75
# Violation at which finishing stops after the first passes of `epochs="converged"`, and the number of these passes.
COARSE, COARSE_PASSES = 0.1, 2
# Shares of the support vectors that are at their bound between which a run looks again at the members that it has dropped. With
# fewer, labels are clean, and with more, very noisy: there the errors stayed the same.
LOOK_AGAIN = 0.005, 0.5
# The move of a gradient that nearly no member exceeds, as a quantile; how many times as far an example may have moved.
MOST, PATHS = 0.99, 2.0


@dataclass(frozen=True, kw_only=True)
class BlocksSettings(Settings):
    """What defines a run in blocks.

    Attributes
    ----------
    batch : int
        Largest number of examples of a problem between two rounds.
    working_set : int
        Largest number of members that a problem chooses in a round, not counting those just admitted; in finishing it may be
        more.
    least_bounded : float
        Passes after the first one are left out if a smaller share of the support vectors is at its bound.
    """

    batch: int = BATCH
    working_set: int = WORKING_SET
    least_bounded: float = 0.0


class BlocksLearner(BiasedLearner):
    """LASVM in blocks, on one problem or on several that share the kernel values.

    Parameters
    ----------
    settings : BlocksSettings
    """

    STATE: ClassVar[tuple[str, ...]] = (
        *BiasedLearner.STATE,
        "collected",
        "skipped",
        "admitted",
        "recent",
        "levels",
        "path",
        "path_before",
        "path_when_scored",
        "all_surveyed",
        "dropped",
        "looking_again",
    )
    settings: BlocksSettings
    expansion: BlockExpansion
    finishing: Sequence[Rounds]

    def __init__(self, settings: BlocksSettings) -> None:
        super().__init__(settings)
        # Members that later passes have left out, and that are counted as seen with the next result.
        self.skipped = 0
        # Examples since the last round in all and of each problem, the members admitted since then, and the members chosen in it.
        self.collected: Ints = np.zeros(1 + settings.problems, np.int64)
        self.admitted: Ints = NOBODY
        self.recent: Flags = np.zeros((settings.problems, 0), np.bool_)
        # The levels of admission since the last round; nan before the first one.
        self.levels: Values = np.full((2, settings.problems), np.nan)
        # How far the gradients of members have moved so far, at the beginning of the pass, and when each example was last scored.
        self.path = self.path_before = 0.0
        self.path_when_scored = np.zeros(0, np.float32)
        # Whether this pass began with a complete survey.
        self.all_surveyed = False
        # Which examples have been members and were dropped, and whether the run looks at those again that are still outside S.
        self.dropped: Flags = np.zeros(0, np.bool_)
        self.looking_again = False
        # The first view with the coefficients of now, and its phase.
        self._first_view: tuple[str, View] | None = None

    def _expansion(self) -> BlockExpansion:
        return BlockExpansion(self.settings.kernel, self.settings.problems, self.settings.cache_bytes)

    def feed(self, order: RandomOrder, seeds: Ints) -> None:
        """Begin a pass over some examples; see `Learner.feed`."""
        super().feed(order, seeds)
        self.path = self.path_before = 0.0
        self.path_when_scored = np.full(len(self.excess), -np.inf, np.float32)
        self.expansion.survey = Survey(self.settings.problems, len(self.excess))
        self.all_surveyed = self.looking_again = False
        self.dropped = np.zeros(len(order), np.bool_)

    def use_memory(self, budget: int) -> None:
        """Set the bytes of kernel values that may be kept."""
        self.expansion.kernel_values.budget = budget

    # Asking

    def _batch_size(self) -> int:
        """Return the size of the next piece of a batch."""
        return int(np.clip(max(self.expansion.places // 4, self.seen // 64), LEAST_BATCH, TILE_ROWS))

    def _next_rows(self) -> Ints:
        """Return the examples of the next piece, without those that are members already: their gradients are known."""
        rows = super()._next_rows()
        while self.phase == "online" and not (self.all_new and self.epoch == 0) and len(rows):
            inside = self._members_of_all_problems()[rows - self.order.base]
            self.skipped += int(np.count_nonzero(inside))
            if self.settings.epochs == 0:
                self.excess[rows[inside] - self.order.base] = np.inf
            if not inside.all():
                return rows[~inside]
            rows = super()._next_rows()
        return rows

    def _another_pass(self) -> bool:
        s = self.expansion
        clean = bounded_share(s.working, s.places) < self.settings.least_bounded
        return super()._another_pass() and not clean and not self.looking_again

    def _examples_left(self) -> int:
        if self.looking_again:
            return self._length()
        return max(super()._examples_left() - self.skipped, 0)

    def _put_in_flight(self, plan: Plan) -> Plan:
        """Note which members the coefficients of a plan belong to: their places and arrival numbers, shape (2, U)."""
        super()._put_in_flight(plan)
        if self.phase in ("seeding", "online"):
            used = used_places(self.expansion.weights())
            self.inflight[plan.sequence] = (plan, np.stack([used, self.expansion.arrival[used]]))
        return plan

    def _view(self) -> View:
        view = self._new_view()
        if self._first_view is None or self._first_view[0] != self.phase:
            self._first_view = (self.phase, view)
        # A view gathers the features of its support vectors when they are first read. Views with equal coefficients share them.
        view.share_support(self._first_view[1])
        return view

    def _new_view(self) -> View:
        view = super()._view()
        if self.phase == "surveying":
            # Nothing is selected: only decision values are wanted, of the coefficients' changes.
            change = self.expansion.survey.change(self.expansion.weights())
            nothing = np.full(self.settings.problems, -np.inf)
            view = replace(view, alpha=change, slack=nothing)
        used = used_places(view.alpha)
        view = replace(view, order=view.order[used], alpha=np.ascontiguousarray(view.alpha[:, used]))
        if self.phase == "checking":
            return view
        if self.phase == "surveying":
            return replace(view, kernel_rows="unused")
        upper, lower = self._levels()
        keeping = view.members is not None and can_keep(self.settings.kernel, view.members)
        rows: Rows = "useful" if keeping else "unused"
        return replace(view, kernel_rows=rows, top=upper, bottom=lower, tau=0.0)

    def _levels(self) -> tuple[Values, Values]:
        """Return the levels of admission. Between two rounds they do not change, except in problems with few members."""
        s, size = self.expansion, self.settings.working_set
        few = (s.working.counts[:, 0] < size) | np.isnan(self.levels).any(axis=0)
        if not few.any():
            return self.levels[0], self.levels[1]
        upper, lower = np.where(few, np.stack(admission_levels(s.working, s.places, size)), self.levels)
        return upper, lower

    def _begin_next_phase(self) -> None:
        if self.phase == "surveying":
            self._end_survey()
            return
        if self.phase == "online":
            self.seen, self.skipped = self.seen + self.skipped, 0
            if self.collected.any():
                self._make_round()
            if self._look_again():
                return
        super()._begin_next_phase()

    def _look_again(self) -> bool:
        """After a single pass, begin to score the members that it has dropped again if that pays; return whether it does.

        Rounds drop members that do not violate at the time. Single steps keep more of them, and some are support vectors later.
        A second pass scores them in any case. Where kernel values are kept, a round reads most of them, and it takes too long.
        """
        s, complete = self.expansion, self.position >= self._length()
        if self.looking_again or self.stopped or self.settings.epochs == 0 or self.epoch > 0 or not complete:
            return False
        if s.kernel_values.kept is not None:
            return False
        if not LOOK_AGAIN[0] <= bounded_share(s.working, s.places) <= LOOK_AGAIN[1]:
            return False
        rows = self.order.rows(self.epoch, 0, len(self.order))
        outside = self.dropped & ~self._members_of_all_problems()
        self.queue, self.position = rows[outside[rows - self.order.base]], 0
        self.looking_again = len(self.queue) > 0
        return self.looking_again

    # Taking

    def _process(self, result: CandidateBatch, plan: ScorePlan, arrivals: Ints) -> None:
        s = self.expansion
        if self.phase == "surveying":
            self._record_survey(result)
            return
        if self.settings.epochs == 0 and self.phase == "online":
            self._note_excess(result, plan)
        s.make_room(result)
        kept = np.flatnonzero(result.row_of >= 0)
        margins = result.margins.copy()
        with s.tools.observe("updating"):
            margins[:, kept] += self._moved_since(result, plan, arrivals)
        gradient, needed = result.sign - margins, find_needed_classes(s.working, SEEDS)
        found = pair_violations(result.sign, gradient, *self._levels(), needed)
        known = s.find_places(result.examples, self.seeds if self.all_new and self.epoch == 0 else None)
        selected = (result.row_of >= 0) & (result.bound > 0) & ~s.is_member(known) & (found > 0)
        if self.phase == "online":
            self.drift.record(np.where(result.bound[:, kept] > 0, found[:, kept] - result.scored, np.nan))
        self._limit(selected, found)
        violating = pair_violations(result.sign, gradient, *s.entry_limits(), needed) > self.settings.tau
        self.changed |= bool((selected & violating).any())
        places = s.add_members(replace(result, margins=margins), np.zeros_like(margins), selected, known)
        self._keep_known_rows(result, arrivals, np.where(known < 0, places, -1))
        self.admitted = np.union1d(self.admitted, places[places >= 0])
        if self.phase == "online":
            if not self.looking_again:
                self.seen, self.skipped = self.seen + len(plan.rows) + self.skipped, 0
            self.collected[0] += len(plan.rows)
            self.collected[1:] += np.count_nonzero(result.bound > 0, axis=1)
        if self.collected[1:].max() >= self._batch() or self._full():
            self._make_round()
            if self._full() and not self.stopped:
                self.stop()

    def _keep_known_rows(self, result: CandidateBatch, arrivals: Ints, places: Ints) -> None:
        """Keep the kernel values of new members that came with the result; `places` is -1 for the other examples."""
        new = np.flatnonzero(places >= 0)
        if len(new) and result.rows.shape[1]:
            new = new[np.argsort(places[new])]
            known_rows = KnownRows(places[new], result.row_of[new], arrivals[0], arrivals[1], result.rows)
            with self.expansion.tools.observe("storing"):
                self.expansion.kernel_values.keep_known(self.expansion, known_rows)

    def _note_excess(self, result: CandidateBatch, plan: ScorePlan) -> None:
        violation = np.where(result.bound > 0, excess(plan.view, result.codes, result.sign, result.margins), -np.inf)
        at = result.examples - self.order.base
        self.excess[at], self.path_when_scored[at] = violation.max(axis=0), self.path_before

    def _may_violate(self) -> Flags:
        """Return which examples may violate by now: since they were scored, gradients have moved by more than they lacked."""
        moved = np.minimum(PATHS * (self.path - self.path_when_scored), NEAR)
        possible: Flags = self.excess > -np.maximum(moved, self.settings.tau)
        return possible

    def _next_pass(self, adopt: Callable[[], None]) -> None:
        after_first = self.changed and self.epoch == 0
        super()._next_pass(adopt)
        self.path_before, self.all_surveyed = self.path, False
        survey, weights = self.expansion.survey, self.expansion.weights()
        rows, inside = self.order.rows(self.epoch, 0, len(self.order)), self._members_of_all_problems()
        outside = rows[~inside[rows - self.order.base]]
        if after_first:
            # Examples that the first pass scored late are known well enough to leave some of them out.
            self.queue = rows[self._may_violate()[rows - self.order.base]]
        scored = None if self.queue is None else int(np.count_nonzero(~inside[self.queue - self.order.base]))
        if survey.pays(weights, len(outside), scored):
            survey.begin(weights)
            self.phase, self.queue = "surveying", outside

    def _record_survey(self, result: CandidateBatch) -> None:
        """Take note of the decision values of some examples, and of how far they are from violating."""
        at = result.examples - self.order.base
        gradient = result.sign - self.expansion.survey.record(at, result.margins)
        needed = find_needed_classes(self.expansion.working, SEEDS)
        found = pair_violations(result.sign, gradient, *self._levels(), needed)
        self.excess[at] = np.where(result.bound > 0, found, -np.inf).max(axis=0)
        self.path_when_scored[at] = self.path_before
        self.seen += len(at)

    def _end_survey(self) -> None:
        """End a survey, and begin the pass over the examples that violate; if it was cut short, forget it and end the pass."""
        s, w = self.expansion, self.expansion.working
        assert self.queue is not None
        self.phase = "online"
        if self.stopped or self.position < len(self.queue):
            s.survey = Survey(self.settings.problems, len(self.order))
            self.position, self.queue = len(self.order), None
            return
        violating = self.excess[self.queue - self.order.base] > 0
        self.position, self.queue, self.all_surveyed = 0, self.queue[violating], True
        ids = np.maximum(s.example[: s.places] - self.order.base, -1)
        members, g, sign = (each[:, : s.places] for each in (w.member, w.g, w.sign))
        s.survey.end(s.weights(), members, ids, g, sign)
        s.free_evicted()

    def _all_looked_at(self) -> bool:
        return super()._all_looked_at() or self.all_surveyed

    def _gradient_uncertainty(self) -> float:
        """Allow for the rounding errors of all surveys together."""
        squares = float((self.expansion.weights() ** 2).sum(axis=1).max(initial=0.0))
        surveyed = self.expansion.survey.squares
        return super()._gradient_uncertainty() * float(np.sqrt(max(1.0, surveyed / max(squares, 1e-300))))

    def _record_move(self, parts: Sequence[Part]) -> None:
        """Record how far the gradients of nearly all members have moved; the working arrays still have the old ones."""
        if self.settings.epochs != 0:
            return
        g, moves = self.expansion.working.g, [0.0]
        for part in parts:
            if part.member.any():
                change = np.abs(part.g - g[part.problem, : len(part.g)])[part.member]
                moves.append(float(np.quantile(change, MOST)))
        self.path += max(moves)

    def _moved_since(self, result: CandidateBatch, plan: ScorePlan, arrivals: Ints) -> Values:
        """Compute by how much the decision values of the candidates have moved since the plan was made, shape (P, K)."""
        s, view, (used, numbers) = self.expansion, plan.view, arrivals
        moved = np.zeros((self.settings.problems, len(result.features)))
        if not len(result.features) or view.members is None:
            return moved
        wanted, uniform = result.bound[:, result.row_of >= 0] > 0, view.kernel_rows == "useful"
        # Of the members that the candidates were scored against, some are not members any more.
        now, same = s.weights(), s.arrival[used] == numbers
        amounts = np.where(same, now[:, used], 0.0) - view.alpha
        changed = used_places(amounts)
        if len(changed) and result.rows.shape[1]:
            moved += sums_of_known(s, result.rows, changed, amounts[:, changed], wanted)
        elif len(changed):
            support = view.members.take(view.order[changed])
            moved += sums(s, result.features, support, amounts[:, changed], wanted, uniform)
        others = now.copy()
        others[:, used[same]] = 0.0
        changed = used_places(others)
        if len(changed):
            support = s.members().take(s.order()[changed])
            moved += sums(s, result.features, support, others[:, changed], wanted, uniform)
        return moved

    def _limit(self, selected: Flags, found: Values) -> None:
        """Withdraw the candidates that violate least, where there are more than S may still take."""
        for p, count in enumerate(self.expansion.working.counts[:, 0]):
            room = max(self.settings.max_support - int(count), 0)
            if np.count_nonzero(selected[p]) > room:
                candidates = np.flatnonzero(selected[p])
                order = np.argsort(-found[p, candidates], kind="stable")
                selected[p, candidates[order[room:]]] = False

    def _full(self) -> bool:
        return bool(self.expansion.working.counts[:, 0].max() >= self.settings.max_support)

    def _batch(self) -> int:
        """Return the number of examples of a problem after which a round is made: fewer while S is small."""
        members, part = int(np.count_nonzero(self.expansion.working.holders)), self._part_of_examples()
        return min(self.settings.batch, int(part * max(members // 2, LEAST_BATCH)))

    def _part_of_examples(self) -> float:
        """Return which part of the examples since the last round the problem with most of them has."""
        return float(self.collected[1:].max() / self.collected[0]) if self.collected[0] else 1.0

    def _make_round(self) -> None:
        """Make the round that follows a batch, and evict the members that it leaves useless."""
        s = self.expansion
        places = s.places
        recent = np.zeros((self.settings.problems, places), np.bool_)
        recent[:, : self.recent.shape[1]] = self.recent
        rules = self._round_rules(self._tau_within(), self.settings.working_set, shrink=False)
        rounds = Rounds(s, s.kernel_values, rules, recent)
        if rounds.choose(s, self.admitted):
            rounds.solve(s)
            # The decision values that this pass has computed are not those of the solution any more.
            self.changed |= rounds.gained()
        self.steps += rounds.steps
        self._first_view = None
        self.recent = rounds.recent
        self.collected[:], self.admitted = 0, NOBODY
        self._record_move(rounds.parts())
        for part in rounds.parts():
            s.write(part.problem, part.alpha, part.g)
        self._set_levels()
        for p, (upper, lower) in enumerate(self.levels.T):
            if np.isfinite(upper) and np.isfinite(lower):
                evict_beyond(s.working, p, upper, lower)
        gone = s.free_evicted() - self.order.base
        self.dropped[gone[gone >= 0]] = True
        s.compact()

    def _set_levels(self) -> None:
        s = self.expansion
        self.levels = np.stack(admission_levels(s.working, s.places, self.settings.working_set))

    # Finishing

    def finisher(self, expansion: Expansion, problem: int, tau: float) -> Rounds:
        """Return the rounds that finish all problems of an expansion."""
        members, least = int(expansion.working.counts[:, 0].max()), self.settings.working_set
        size = int(np.clip(members // SET_PART, least, LARGEST_SET * least))
        assert isinstance(expansion, BlockExpansion)
        return Rounds(expansion, expansion.kernel_values, self._round_rules(tau, size, shrink=True))

    def _round_rules(self, tau: float, size: int, *, shrink: bool) -> RoundRules:
        return RoundRules(tau, size, shrink)

    def _finishing_tau(self) -> float:
        """Return where finishing stops: early in the first passes of several, after which others follow in any case."""
        if not self.settings.finish:
            return super()._finishing_tau()
        tau = self._tau_within()
        return max(tau, COARSE) if self.settings.epochs == 0 and self.epoch < COARSE_PASSES and self.changed else tau

    def _tau_within(self) -> float:
        """Return by how much pairs within S may violate.

        A run that claims convergence ends when no pair of the whole set violates by more than 2τ. Examples outside S must not
        add more than τ to the extremes of S, because two of them may be a pair; for pairs within S nearly 2τ will do.
        """
        return self.settings.tau * (WITHIN if self.settings.epochs == 0 else 1.0)

    def _solved_problems(self) -> Sequence[Part]:
        return self.finishing[-1].parts() if self.finishing else []

    def _after_finishing(self) -> None:
        # The last pass has computed the decision values of the coefficients before these rounds. Where rounding errors keep the
        # rounds from their end, further passes would not help.
        rounds = self.finishing[-1]
        ended = bool(rounds.outcome().delta.max() <= rounds.rules.tau)
        self.changed |= rounds.rounds > 0 and ended
        if rounds.rounds > 0 and not ended and self.settings.epochs == 0:
            # The coefficients have changed nevertheless: a claim has to check all examples.
            self.excess[:] = np.inf
        self._make_passes(self._adopt, self._verify)

    def _adopt(self) -> None:
        self._first_view = None
        self._record_move(self._solved_problems())
        for part in self._solved_problems():
            self.expansion.adopt(part.problem, part.alpha, part.g)
        self.expansion.compact()
        self._set_levels()

    def _verify(self) -> float:
        worst = 0.0
        for part in self._solved_problems():
            with self.expansion.tools.observe("verifying"):
                exact = self.expansion.exact_gradients(part.problem, part.alpha)
            self.error = max(self.error, float(np.abs(exact - part.g)[part.member].max(initial=0.0)))
            self.finishing[-1].set_gradients(part.problem, exact)
        for part in self._solved_problems():
            top, bottom = part.extremes()
            worst = max(worst, top - bottom)
        return worst

    def _violates_at_most(self, tolerance: float) -> bool:
        """Return whether no violation exceeds the tolerance.

        After a claim they need no allowance for errors: `_verify` has replaced the gradients in S by those in float64, and the
        examples outside S that may violate have been scored in float64.
        """
        return bool(self.violation.max() <= tolerance)


def used_places(amounts: Values) -> Ints:
    """Return the places at which some problem has a number other than 0."""
    return np.flatnonzero(amounts.any(axis=0))
