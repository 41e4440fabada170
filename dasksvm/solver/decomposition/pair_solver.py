"""The finisher that makes steps in pairs on one problem, with shrinking.

Members at a bound that violate with neither extreme are left out for a while (shrinking, as in LIBSVM): kernel rows then have
values for the active members only. When the active members do not violate any more, the gradients of the others are updated for
all changes made in the meantime, and all members become active again.
"""

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.decomposition.intake import AllExamplesExpansion
from dasksvm.solver.decomposition.pair_rows import completed
from dasksvm.solver.decomposition.pair_state import (
    BOTTOM,
    CONTINUE,
    CONVERGED,
    DUAL,
    EXHAUSTED,
    FALLING,
    FIELDS,
    FRESH,
    IDLE,
    KEPT,
    LEAST,
    MEASURES,
    MISSING,
    MISSING_TOO,
    NEW,
    NO_MEMBER,
    RISING,
    STUCK,
    TOP,
    make_pair_state,
    pair_choice,
    refresh_extremes,
)
from dasksvm.solver.decomposition.pair_steps import advance
from dasksvm.solver.decomposition.rules import PairRules
from dasksvm.solver.engine.finisher import Outcome
from dasksvm.solver.generator import draw, seeded
from dasksvm.solver.kernels.features import Floats, Ints, Values
from dasksvm.solver.state.capture import State, Stateful
from dasksvm.solver.state.expansion import Expansion
from dasksvm.solver.state.row_cache import RowCache, narrowed, set_values

# Steps between two attempts to shrink; the smallest share of members that is worth leaving out; once, when the violation falls
# below this many times τ, all members become active again.
SHRINK_STEPS, SHRINK_SHARE, NEAR_REST = 1000, 0.05, 10.0
# Number of gradients that are updated before the caller is in control again.
AT_ONCE = 1e8
# How often gradients may be recomputed in float64 when the steps end.
REFRESHES = 5


class PairFinisher(Stateful):
    """Steps in pairs on a problem, with copies of its coefficients and gradients.

    Parameters
    ----------
    expansion : Expansion
        With all examples as members.
    problem : int
    rules : PairRules
    tau : float
    seed : int
        Determines the first pair.
    start : ndarray of float64, shape (V,), or None
        Coefficients to start from; None: α = 0.

    Attributes
    ----------
    steps, computed : int
        Number of steps made; number of kernel rows computed.
    """

    STATE = (
        "problem",
        "limit",
        "steps",
        "computed",
        "refreshes",
        "error",
        "stop_reason",
        "begun",
        "ended",
        "unshrunk",
        "next_shrink",
        "pair",
        "measures",
        "_alpha",
        "_g",
        "active",
        "cache",
        "shrink_round",
        "alpha_before",
    )

    def __init__(
        self, expansion: Expansion, problem: int, rules: PairRules, tau: float, seed: int, start: Values | None
    ) -> None:
        w, places = expansion.working, expansion.places
        self.problem, self.seed, self.start_alpha = problem, seed, start
        self.limit, self.shrinking = rules.limit, rules.shrinking
        self.choice = pair_choice(rules, tau)
        self.sign, self.member = w.sign[problem, :places], w.member[problem, :places]
        self.lower, self.upper = w.lower[problem, :places], w.upper[problem, :places]
        self.diagonal = w.diagonal[:places].astype(expansion.cache.pages.dtype)
        self.steps = self.computed = self.refreshes = 0
        self.error = 0.0
        self.stop_reason = CONTINUE
        self.begun = self.ended = self.unshrunk = False
        self.shrink_interval = int(min(max(int(np.count_nonzero(self.member)), 1), SHRINK_STEPS))
        self.next_shrink = self.shrink_interval
        self.pair: Ints = np.full(FIELDS, NO_MEMBER, np.int64)
        self.measures: Values = np.zeros(MEASURES)
        # Places of the active members, and their row cache while others are left out. For each place, the number of the shrinking
        # that left it out (-1: none), and α before each shrinking.
        self.active: Ints = np.arange(places)
        self.cache: RowCache | None = None
        self.shrink_round: Ints = np.full(places, -1, np.int64)
        self.alpha_before: list[Values] = []
        self._alpha: Values = np.zeros(places)
        self._g: Values = self.sign.copy()
        self._make_pair_state()
        self._refresh_measures()

    # Results

    @property
    def alpha(self) -> Values:
        """Coefficients of all places."""
        if self.alpha_before:
            self._alpha[self.active] = self.pair_state.alpha
        return self._alpha

    @property
    def g(self) -> Values:
        """Gradients of all places; those of members that are left out are out of date."""
        if self.alpha_before:
            self._g[self.active] = self.pair_state.g
        return self._g

    @property
    def dual(self) -> float:
        """W(α) of paper 1, equation 4."""
        return float(self.measures[DUAL])

    @property
    def stuck(self) -> bool:
        """Whether maximum gain found no pair with a member of the previous one, although others violate (paper 4, theorem 7)."""
        return self.ended and self.stop_reason == STUCK

    def movable(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which coefficients may rise and which may fall."""
        return self.member & (self.alpha < self.upper), self.member & (self.alpha > self.lower)

    def extremes(self) -> tuple[float, float]:
        """Return g_max and g_min of paper 1, equation 10, of the active members."""
        return float(self.measures[TOP]), float(self.measures[BOTTOM])

    def outcome(self) -> Outcome:
        """Return the result so far."""
        top, bottom = self.extremes()
        return Outcome.of_problem(self.alpha, (top, bottom), top - bottom, self.dual)

    # Finishing

    def choose(self, expansion: Expansion) -> bool:
        """Return whether there are steps to make; if not, the finisher has ended."""
        if not self.begun:
            self._begin(expansion)
        if self.ended:
            return False
        over = self.steps >= self.limit
        done = over or self.stop_reason in (CONVERGED, STUCK, EXHAUSTED)
        if done and self.alpha_before:
            self._unshrink(expansion)
            self.next_shrink = self.steps + 1
            done = over
        if done and not over and self.stop_reason != STUCK and self.refreshes < REFRESHES:
            done = not self._refresh(expansion)
        if done:
            self.ended = True
            self._compute_dual()
            return False
        if self.shrinking and self.steps >= self.next_shrink:
            self._shrink(expansion)
        return True

    def order(self, expansion: Expansion) -> Ints:
        """Return the slots of the active places."""
        return expansion.order()[self.active] if self.alpha_before else expansion.order()

    def missing(self, expansion: Expansion) -> Ints:
        """Return the slots of the members whose rows the next step needs but are not cached."""
        return self.order(expansion)[self._missing_rows()]

    def put(self, expansion: Expansion, rows: Floats) -> None:
        """Cache the rows that were missing."""
        missing, cache = self._missing_rows(), self._row_cache(expansion)
        expansion.put_rows(cache, missing, rows)
        for place in missing:
            # Curvatures are computed from the exact K(x, x), so that gradients must be updated with it too.
            set_values(cache, place, np.array([place]), self.pair_state.diagonal[[place]])
        self.computed += len(missing)

    def solve(self, expansion: Expansion) -> None:
        """Make steps, up to the first one whose rows are not cached."""
        max_steps = max(int(AT_ONCE / max(len(self.active), 1)), 1)
        max_steps = min(
            max_steps, self.limit - self.steps, max(self.next_shrink - self.steps, 1) if self.shrinking else max_steps
        )
        self.stop_reason, steps = advance(self.pair_state, self._row_cache(expansion), self.choice, max_steps)
        self.steps += steps

    def _missing_rows(self) -> Ints:
        places = self.pair[[MISSING, MISSING_TOO]]
        return places[places >= 0]

    def _row_cache(self, expansion: Expansion) -> RowCache:
        """Return the cache of the active members' rows, or the expansion's if no member is left out."""
        return expansion.cache if self.cache is None else self.cache

    def _begin(self, expansion: Expansion) -> None:
        """Start from the given coefficients, or from α = 0 with a random pair."""
        self.begun = True
        moved = np.zeros(0, np.int64) if self.start_alpha is None else np.flatnonzero(self.start_alpha)
        if len(moved):
            assert self.start_alpha is not None
            self._alpha[moved] = np.clip(self.start_alpha[moved], self.lower[moved], self.upper[moved])
            expansion.subtract_computed(self._g, np.flatnonzero(self.member), moved, self._alpha[moved])
            self._make_pair_state()
            self._refresh_measures()
        elif self.measures[TOP] - self.measures[BOTTOM] > self.choice.tau:
            random = seeded(self.seed)
            for field, sign in ((RISING, 1), (FALLING, -1)):
                side = np.flatnonzero(self.member & (self.sign == sign))
                self.pair[field] = side[int(draw(random) * len(side))]

    def _refresh(self, expansion: Expansion) -> bool:
        """Recompute gradients near the extremes in float64; return whether they show a violation, so that steps continue."""
        assert isinstance(expansion, AllExamplesExpansion)
        self.refreshes += 1
        self._alpha, before = self.alpha, self.g
        self._g, self.error = expansion.corrected_gradients(self.problem, before, self._alpha, self.extremes())
        self._make_pair_state()
        self._refresh_measures()
        if self.choice.by_gain or (self.measures[TOP] - self.measures[BOTTOM]) / 2 + self.error <= self.choice.tau:
            return False
        self.pair[[RISING, FALLING, FRESH, MISSING, MISSING_TOO]] = NO_MEMBER
        self.stop_reason = CONTINUE
        return True

    def _make_pair_state(self) -> None:
        """Make the state of the steps from the active members."""
        among = self.active if self.alpha_before else slice(None)
        alpha, g, lower, upper, diagonal = (
            array[among] for array in (self._alpha, self._g, self.lower, self.upper, self.diagonal)
        )
        self.pair_state = make_pair_state(alpha, g, lower, upper, diagonal, self.pair, self.measures)

    def _refresh_measures(self) -> None:
        """Recompute the extremes and the dual."""
        refresh_extremes(self.pair_state)
        self.measures[LEAST], self.measures[IDLE] = np.inf, 0.0
        self._compute_dual()

    def _compute_dual(self) -> None:
        """Recompute the dual, ½ Σ α (y + g), if no member is left out."""
        if not self.alpha_before:
            self.measures[DUAL] = 0.5 * float(self._alpha @ (self.sign + self._g))

    def _shrink(self, expansion: Expansion) -> None:
        """Leave out the members at a bound that violate with neither extreme, if they are enough to make a difference."""
        self.next_shrink = self.steps + self.shrink_interval
        if not self.unshrunk and self.measures[TOP] - self.measures[BOTTOM] <= NEAR_REST * self.choice.tau:
            self.unshrunk = True
            self._unshrink(expansion)
        state, top, bottom = self.pair_state, self.measures[TOP], self.measures[BOTTOM]
        idle = ~(state.up & state.down) & ~(state.up & (state.g >= bottom)) & ~(state.down & (state.g <= top))
        # The members of the current and the previous pair stay active.
        named = [RISING, FALLING, FRESH, KEPT, NEW, MISSING, MISSING_TOO]
        named = [field for field in named if self.pair[field] >= 0]
        idle[self.pair[named]] = False
        stay = np.flatnonzero(~idle)
        if len(stay) > (1.0 - SHRINK_SHARE) * len(idle):
            return
        self._alpha, self._g = self.alpha, self.g
        self.shrink_round[self.active[idle]] = len(self.alpha_before)
        self.alpha_before.append(self._alpha.copy())
        self.active = self.active[stay]
        self.pair[named] = np.searchsorted(stay, self.pair[named])
        rows = narrowed(self._row_cache(expansion), stay)
        if self.cache is None:
            expansion.release_rows()
        self.cache = rows
        self._make_pair_state()

    def _unshrink(self, expansion: Expansion) -> None:
        """Update the gradients of the members that were left out, and make all members active."""
        self._alpha, self._g = self.alpha, self.g
        for number, before in enumerate(self.alpha_before):
            moved = np.flatnonzero(self._alpha != before)
            out = np.flatnonzero(self.member & (self.shrink_round == number))
            expansion.subtract_computed(self._g, out, moved, self._alpha[moved] - before[moved])
        named = [field for field in (KEPT, NEW) if self.pair[field] >= 0]
        if self.cache is not None:
            # Members at a bound will hardly move: only the rows of the others, and of the previous pair, are kept.
            kept = self.pair_state.up & self.pair_state.down
            kept[self.pair[named]] = True
            expansion.cache = completed(expansion, self.cache, self.active, kept)
        self.pair[named] = self.active[self.pair[named]]
        self.pair[[RISING, FALLING, FRESH, MISSING, MISSING_TOO]] = NO_MEMBER
        self.cache, self.alpha_before, self.stop_reason = None, [], CONTINUE
        self.shrink_round[:] = -1
        self.active = np.arange(len(self._alpha))
        self._make_pair_state()
        self._refresh_measures()

    # Snapshots

    def state(self) -> State:
        """Return the state that is not part of the expansion."""
        self._alpha, self._g = self.alpha, self.g
        return super().state()

    def restore(self, state: State) -> None:
        """Continue from a state."""
        super().restore(state)
        self._make_pair_state()
