"""Random coordinate ascent on the problem of all examples: the baseline of paper 3, section 6.3.

First all examples become members with α = 0, which needs no kernel values. Finishing then makes K random coordinate steps per
example: each picks one of all examples at random. The kernel rows of a block of picks are computed as one tile.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dasksvm.solver.decomposition.intake import AllExamplesExpansion, view_for_intake
from dasksvm.solver.engine.finisher import Outcome
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.generator import draw, skip
from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Floats, Ints, Values
from dasksvm.solver.lasvm.finishing import find_missing_rows
from dasksvm.solver.messages import CandidateBatch, ScorePlan, View
from dasksvm.solver.state.capture import Stateful
from dasksvm.solver.state.expansion import Expansion
from dasksvm.solver.state.row_cache import PAGE, RowCache
from dasksvm.solver.unbiased.gap_steps import free_step
from dasksvm.solver.unbiased.learner import UnbiasedLearner

# Largest number of picks whose rows are computed together; it is smaller if the cache cannot hold twice as many rows.
BLOCK = 128


class AscentFinisher(Stateful):
    """The coordinate steps of a problem, on copies of its coefficients and gradients.

    Parameters
    ----------
    expansion : AllExamples
    problem : int
    seed : int
    steps : int
        K, the number of picks per example.
    """

    STATE = ("problem", "alpha", "g", "dual", "steps", "done", "next_picks", "_missing_rows")

    def __init__(self, expansion: Expansion, problem: int, seed: int, steps: int) -> None:
        w, places = expansion.working, expansion.places
        self.problem, self.seed = problem, seed
        self.alpha: Values = np.zeros(places)
        self.sign, self.lower, self.upper = (
            w.sign[problem, :places],
            w.lower[problem, :places],
            w.upper[problem, :places],
        )
        self.g: Values = self.sign.copy()
        self.diagonal = w.diagonal[:places]
        self.total = steps * places
        self.dual, self.steps, self.done = 0.0, 0, 0
        self.next_picks: Ints = np.zeros(0, np.int64)
        self._missing_rows: Ints = np.zeros(0, np.int64)

    def choose(self, expansion: Expansion) -> bool:
        """Draw the next block of picks; return False if all picks are made."""
        cache = expansion.cache
        size = min(BLOCK, max(len(cache.pages) // cache.table.shape[1] // 2, 1), self.total - self.done)
        self.next_picks = draw_picks(self.seed, self.done, size, len(self.alpha))
        return bool(size > 0)

    def order(self, expansion: Expansion) -> Ints:
        """Return the slots of all places."""
        return expansion.order()

    def missing(self, expansion: Expansion) -> Ints:
        """Return the slots of the members that the picks would move in the current state and whose rows are not cached."""
        at = self.next_picks
        room = np.where(self.g[at] > 0, self.upper[at] - self.alpha[at], self.alpha[at] - self.lower[at])
        self._missing_rows = find_missing_rows(expansion.cache, np.unique(at[(self.g[at] != 0.0) & (room > 0.0)]))
        return expansion.order()[self._missing_rows]

    def put(self, expansion: Expansion, rows: Floats) -> None:
        """Cache the rows that were missing."""
        expansion.put_rows(expansion.cache, self._missing_rows, rows)

    def solve(self, expansion: Expansion) -> None:
        """Make the steps of the picks, up to the first one whose row is not cached."""
        done, steps, gain = ascend(
            self.next_picks, self.alpha, self.g, self.lower, self.upper, self.diagonal, expansion.cache
        )
        self.done, self.steps, self.dual = self.done + done, self.steps + steps, self.dual + gain

    @property
    def gap(self) -> float:
        """The duality gap divided by Σ C_i."""
        terms = np.maximum(self.lower * self.g, self.upper * self.g) - self.alpha * self.g
        return float(terms.sum() / max((self.upper - self.lower).sum(), np.finfo(float).tiny))

    def outcome(self) -> Outcome:
        """Return the result so far; there is no bias."""
        return Outcome.of_problem(self.alpha, (0.0, 0.0), self.gap, self.dual)


@dataclass(frozen=True, kw_only=True)
class AscentSettings(Settings):
    """The settings of batch coordinate ascent.

    Attributes
    ----------
    steps : int
        K, the number of picks per example.
    """

    converges = False
    steps: int


class AscentLearner(UnbiasedLearner):
    """Batch coordinate ascent on one problem, or on several that share the kernel rows.

    Parameters
    ----------
    settings : AscentSettings
    """

    settings: AscentSettings
    expansion: AllExamplesExpansion
    finishing: Sequence[AscentFinisher]

    def _expansion(self) -> Expansion:
        return AllExamplesExpansion(self.settings.kernel, self.settings.problems, self.settings.cache_bytes)

    def _view(self) -> View:
        return view_for_intake(self.applied, self.settings.problems)

    def _process(self, result: CandidateBatch, plan: ScorePlan, arrivals: Ints) -> None:
        self.expansion.add_all(result)
        self.seen += len(result.examples) if self.phase == "online" else 0

    def _measure_and_dual(self) -> tuple[Values, Values]:
        finishers = [self.finisher(self.expansion, p, 0.0) for p in range(self.settings.problems)]
        for each in self.finishing:
            finishers[each.problem] = each
        return np.array([each.gap for each in finishers]), np.array([each.dual for each in finishers])

    def finisher(self, expansion: Expansion, problem: int, tau: float) -> AscentFinisher:
        """Return the finisher of a problem."""
        return AscentFinisher(expansion, problem, self.settings.seed, self.settings.steps)


@njit()
def draw_picks(seed: int, done: int, count: int, among: int) -> Ints:  # pragma: no cover
    """Draw `count` picks uniformly from `among` places; `done` picks were drawn before."""
    out = np.empty(count, np.int64)
    random = np.empty(1, np.uint64)
    random[0] = np.uint64(seed)
    skip(random, done)
    for k in range(count):
        out[k] = np.int64(draw(random) * among)
    return out


@njit()
def ascend(
    next_picks: Ints, alpha: Values, g: Values, lower: Values, upper: Values, diagonal: Values, cache: RowCache
) -> tuple[int, int, float]:  # pragma: no cover
    """Make the steps of picks until a row is missing; return the numbers of picks and steps, and the increase of the dual."""
    pages, table, cached = cache.pages, cache.table, cache.cached
    steps, gain = 0, 0.0
    for k in range(len(next_picks)):
        i = next_picks[k]
        length = free_step(g, alpha, lower, upper, diagonal, i)
        if length == 0.0:
            continue
        if not cached[i]:
            return k, steps, gain
        alpha[i] += length
        gain += length * (g[i] - 0.5 * length * diagonal[i])
        for start in range(0, len(g), PAGE):
            page = table[i, start // PAGE]
            for a in range(min(PAGE, len(g) - start)):
                g[start + a] -= length * np.float64(pages[page, a])
        steps += 1
    return len(next_picks), steps, gain
