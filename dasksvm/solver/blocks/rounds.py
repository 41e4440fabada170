"""Rounds: one solves the problem restricted to a working set of members, then moves the gradients of all members at once.

A round needs the square of kernel values among the working set, and the kernel values between the members in play and those of
the working set whose coefficients changed (see `kernel_values`). All problems make their rounds together and share these values.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dasksvm.solver.blocks.kernel_values import KernelValues
from dasksvm.solver.decomposition.block_pairs import solve_by_pairs
from dasksvm.solver.decomposition.pair_state import number_of
from dasksvm.solver.engine.finisher import Outcome
from dasksvm.solver.kernels.features import Flags, Floats, Ints, Values
from dasksvm.solver.lasvm.finishing import (
    INNER_STEPS,
    ROUNDING,
    SHRINK_ROUNDS,
    SHRINK_SHARE,
    StallDetector,
    largest,
    solve_block,
)
from dasksvm.solver.state.capture import Stateful
from dasksvm.solver.state.expansion import Expansion

NOBODY: Ints = np.zeros(0, np.int64)
# The problem of a working set is solved until δ is this share of what it is in S, or τ. A smaller share costs more rounds than it
# saves later: the rest of S moves at the same time.
INNER_SHARE = 0.1
# Problems whose squares are in memory at the same time.
SQUARES = 8
NO_LIMIT = 1 << 60


class RoundRules(NamedTuple):
    """How rounds are made.

    Attributes
    ----------
    tau : float
        Rounds end when δ ≤ tau.
    size : int
        Largest number of members that a problem chooses for its working set, not counting those just admitted.
    shrink : bool
        Whether members at a bound that no pair violates may be left out.
    selection : {"second-order", "mvp", "mg", "hmg"}
        How a pair is chosen within a working set; see `PairRules`.
    limit : int
        Largest number of steps.
    """

    tau: float
    size: int
    shrink: bool
    selection: str = "second-order"
    limit: int = NO_LIMIT


@dataclass(frozen=True)
class Part:
    """One problem of a `Rounds`; see `BiasedProblem`."""

    problem: int
    alpha: Values
    g: Values
    lower: Values
    upper: Values
    member: Flags
    dual: float

    def movable(self) -> tuple[Flags, Flags]:
        """Return which members may rise and which may fall."""
        return self.member & (self.alpha < self.upper), self.member & (self.alpha > self.lower)

    def extremes(self) -> tuple[float, float]:
        """Return g_max and g_min of paper 1, equation 10; -inf and inf where nothing may move."""
        up, down = self.movable()
        return float(np.max(self.g, where=up, initial=-np.inf)), float(np.min(self.g, where=down, initial=np.inf))


class Rounds(Stateful):
    """The problems restricted to S, on copies of their coefficients and gradients.

    As a `Finisher` it stands for all problems at once.

    Parameters
    ----------
    expansion : Expansion
    kernel_values : KernelValues
        Of the expansion.
    rules : RoundRules
    recent : ndarray of bool, shape (P, V), optional
        Members that were chosen in the round before.
    """

    STATE = (
        "alpha",
        "g",
        "dual",
        "gain",
        "steps",
        "rounds",
        "stall",
        "in_play",
        "shrink_round",
        "alpha_before",
        "unshrunk",
        "recent",
        "chosen",
        "target",
    )

    def __init__(
        self, expansion: Expansion, kernel_values: KernelValues, rules: RoundRules, recent: Flags | None = None
    ) -> None:
        w, places = expansion.working, expansion.places
        self.rules, self.kernel_values = rules, kernel_values
        self.alpha: Values = w.alpha[:, :places].copy()
        self.g: Values = w.g[:, :places].copy()
        self.lower, self.upper = w.lower[:, :places], w.upper[:, :places]
        self.sign, self.member = w.sign[:, :places], w.member[:, :places]
        self.steps = self.rounds = 0
        self.gain = 0.0
        self.stall = StallDetector()
        self.recent: Flags = np.zeros(self.member.shape, np.bool_) if recent is None else recent
        # Which members are in play; when each of the others was left out, and α at each of these times.
        self.in_play: Flags = self.member.any(axis=0)
        self.shrink_round: Ints = np.full(places, -1, np.int64)
        self.alpha_before: list[Values] = []
        self.unshrunk = False
        # The working set of each problem, and how far its problem is solved.
        self.chosen: Flags = np.zeros(self.member.shape, np.bool_)
        self.target: Values = np.zeros(len(self.alpha))
        self.dual: Values = self._duals()

    @property
    def problem(self) -> int:
        """The last of the problems that are solved together."""
        return len(self.alpha) - 1

    def parts(self) -> list[Part]:
        """Return the problems one by one."""
        arrays = (self.alpha, self.g, self.lower, self.upper, self.member, self.dual)
        return [Part(p, *each) for p, each in enumerate(zip(*arrays, strict=True))]

    def set_gradients(self, problem: int, g: Values) -> None:
        """Replace the gradients of a problem, and the dual that follows from them."""
        self.g[problem] = g
        self.dual = self._duals()

    def _duals(self) -> Values:
        """Compute W(α) of paper 1, equation 4: ½ Σ α (y + g)."""
        duals: Values = 0.5 * np.einsum("ps,ps->p", self.alpha, self.sign + self.g)
        return duals

    def _movable(self) -> tuple[Flags, Flags]:
        playing = self.member & self.in_play
        return playing & (self.alpha < self.upper), playing & (self.alpha > self.lower)

    def levels(self) -> tuple[Values, Values]:
        """Return the extremes of the members in play, shape (P,); -inf and inf where nothing may move."""
        up, down = self._movable()
        return np.max(self.g, axis=1, where=up, initial=-np.inf), np.min(self.g, axis=1, where=down, initial=np.inf)

    def gained(self) -> bool:
        """Return whether the last round increased the duals by more than rounding."""
        return self.gain > float((ROUNDING * np.abs(self.dual).sum()) ** 2)

    def choose(self, expansion: Expansion, admitted: Ints = NOBODY) -> bool:
        """Choose the working set of each problem; False if no pair violates.

        Parameters
        ----------
        expansion : Expansion
        admitted : ndarray of int64
            Places of members that have just been admitted: they belong to the working sets.
        """
        if self.rules.shrink and self.rounds > 0 and self.rounds % SHRINK_ROUNDS == 0:
            self._shrink()
        tau = self.rules.tau
        top, bottom = self.levels()
        with np.errstate(invalid="ignore"):  # inf - inf
            violating = top - bottom > tau
        out_of_steps = self.steps >= self.rules.limit
        stalled = self.stall.record_round(self.gained(), float(np.max(top - bottom)))
        ended = stalled or out_of_steps or not violating.any()
        if ended and self.alpha_before:
            self._unshrink(expansion)
            self.stall = StallDetector()
            top, bottom = self.levels()
            violating = top - bottom > tau
            ended = out_of_steps or not violating.any()
        if ended:
            return False
        self.rounds += 1
        up, down = self._movable()
        self.chosen[:] = False
        for p in np.flatnonzero(violating):
            self._choose_members(int(p), up[p], down[p], top[p], bottom[p], admitted)
        self.target = np.maximum(tau, INNER_SHARE * (top - bottom))
        return True

    def _choose_members(self, p: int, up: Flags, down: Flags, top: float, bottom: float, admitted: Ints) -> None:
        """Choose the working set of a problem.

        It has the members just admitted, up to size / 2 of those chosen in the round before, and the worst violators among the
        others.
        """
        g, size = self.g[p], self.rules.size
        new = admitted[self.member[p, admitted]]
        kept = np.flatnonzero(self.recent[p] & self.member[p] & self.in_play)
        kept = kept[:: max(-(-2 * len(kept) // size), 1)]
        taken = self.chosen[p]
        taken[kept] = taken[new] = True
        half = max(size - len(kept) - len(new), size // 4) // 2
        rising = largest(g, np.flatnonzero(up & ~taken & (g > bottom + self.rules.tau)), half)
        falling = largest(-g, np.flatnonzero(down & ~taken & (g < top - self.rules.tau)), half)
        self.recent[p] = False
        self.recent[p, rising] = self.recent[p, falling] = self.recent[p, new] = True
        taken[rising] = taken[falling] = True

    def stop(self) -> None:
        """Make no more steps."""
        self.rules = self.rules._replace(limit=0)

    def order(self, expansion: Expansion) -> Ints:
        """Return the slots of the places."""
        return expansion.order()

    def missing(self, expansion: Expansion) -> Ints:
        """Return nothing: a round computes the values that it needs itself."""
        return NOBODY

    def put(self, expansion: Expansion, rows: Floats) -> None:
        """Do nothing: no rows are requested."""

    def solve(self, expansion: Expansion) -> None:
        """Solve the problems of the working sets, and move the gradients of the members in play."""
        places = np.flatnonzero(self.chosen.any(axis=0))
        with expansion.tools.observe("storing"):
            self.kernel_values.begin_round(expansion)
        after, gradients = self.alpha[:, places], self.g[:, places]
        busy = np.flatnonzero(self.chosen.any(axis=1))
        for start in range(0, len(busy), SQUARES):
            self._solve_problems(expansion, busy[start : start + SQUARES], places, after, gradients)
        amounts = after - self.alpha[:, places]
        moved = np.flatnonzero(amounts.any(axis=0))
        changed, amounts = places[moved], amounts[:, moved]
        before = self.g[:, changed]
        self.alpha[:, changed] = after[:, moved]
        others = self.in_play
        if len(self.alpha) == 1 and self.kernel_values.kept is None:
            # The steps have moved the gradients of the working set already, from the same kernel values.
            self.g[:, places], others = gradients, others & ~self.chosen[0]
        with expansion.tools.observe("shifting"):
            self.kernel_values.move_gradients(expansion, self.g, others, changed, amounts)
        gains = 0.5 * np.einsum("ps,ps->p", amounts, before + self.g[:, changed])
        self.gain = float(gains.sum())
        self.dual = self.dual + gains

    def _solve_problems(
        self, expansion: Expansion, problems: Ints, places: Ints, after: Values, gradients: Values
    ) -> None:
        """Solve the problems of some working sets; coefficients and gradients at `places` go to `after` and `gradients`."""
        chosen = [np.flatnonzero(self.chosen[p]) for p in problems]
        limits = np.minimum(INNER_STEPS * self.chosen[problems].sum(axis=1), self._shares(len(problems)))
        with expansion.tools.observe("squaring"):
            squares = self.kernel_values.squares(expansion, chosen)
        steps, selection = np.zeros(len(problems), np.int64), number_of(self.rules.selection)

        def solve_some(part: tuple[int, int]) -> None:
            for number in range(*part):
                p, at = int(problems[number]), chosen[number]
                alpha, g, limit = self.alpha[p, at], self.g[p, at], int(limits[number])
                problem = squares[number], alpha, g, self.lower[p, at], self.upper[p, at], float(self.target[p]), limit
                steps[number] = solve_by_pairs(*problem, selection)
                # Where maximum gain stalls at once, only pairs chosen in another way make progress.
                steps[number] = steps[number] or solve_block(*problem)
                where = np.searchsorted(places, at)
                after[p, where], gradients[p, where] = alpha, g

        with expansion.tools.observe("solving"):
            expansion.in_halves(solve_some, len(problems), 1)
        self.steps += int(steps.sum())

    def _shares(self, problems: int) -> Ints:
        """Return how many steps each of some problems may make, of those that are left."""
        each, more = divmod(max(self.rules.limit - self.steps, 0), problems)
        return each + (np.arange(problems) < more)

    def _shrink(self) -> None:
        """Leave out the members at a bound that are beyond both extremes in every problem, where that makes a difference."""
        if self.unshrunk:
            return
        up, down = self._movable()
        top, bottom = self.levels()
        busy = (up & down) | (up & (self.g >= bottom[:, None])) | (down & (self.g <= top[:, None]))
        stay: Flags = np.asarray(busy.any(axis=0))
        if np.count_nonzero(stay) > SHRINK_SHARE * np.count_nonzero(self.in_play):
            return
        self.shrink_round[self.in_play & ~stay] = len(self.alpha_before)
        self.alpha_before.append(self.alpha.copy())
        self.in_play = stay

    def _unshrink(self, expansion: Expansion) -> None:
        """Move the gradients of those left out, and look at all members from now on."""
        with expansion.tools.observe("storing"):
            self.kernel_values.begin_round(expansion)
        for number, before in enumerate(self.alpha_before):
            amounts = self.alpha - before
            moved = np.flatnonzero(amounts.any(axis=0))
            left_out = self.shrink_round == number
            with expansion.tools.observe("shifting"):
                self.kernel_values.move_gradients(expansion, self.g, left_out, moved, amounts[:, moved])
        self.alpha_before, self.unshrunk = [], True
        self.in_play = self.member.any(axis=0)

    def outcome(self) -> Outcome:
        """Return the coefficients, extremes, violations and duals."""
        extremes = np.array([part.extremes() for part in self.parts()])
        return Outcome(self.alpha, extremes, extremes[:, 0] - extremes[:, 1], self.dual)
