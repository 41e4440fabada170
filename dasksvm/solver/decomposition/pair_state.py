"""The state of the steps in pairs: the active members of a problem, the current pair, and elementary operations on them."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.decomposition.rules import CORNER, PairRules
from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Flags, Floats, Ints, Values
from dasksvm.solver.registry import look_up
from dasksvm.solver.state.direction_search import block_extremes, snapped, step_length
from dasksvm.solver.state.row_cache import PAGE, RowCache, blocks_of

# The numbers by which jitted code knows the selections.
MVP, SECOND_ORDER, MG, HMG = range(4)
SELECTION_NUMBERS = {"mvp": MVP, "second-order": SECOND_ORDER, "mg": MG, "hmg": HMG}
# Whether the solver stops when the step of a pair of maximum gain is short.
BY_GAIN = {"kkt": False, "gain": True}
# Rows that maximum gain can search: all cached rows (0), one of the previous pair's rows (1), or both (2).
SEARCHABLE = (0, 1, 2)
# Reasons why a series of steps ends: all steps are made; a kernel row is missing; the stopping rule is met; no pair with a member
# of the previous one has a gain; the only gains left are rounding.
CONTINUE, ROW_MISSING, CONVERGED, STUCK, EXHAUSTED = range(5)
# Fields of PairState.pair: the next pair, its member that was not in the previous pair, the previous pair, and the missing rows.
RISING, FALLING, FRESH, KEPT, NEW, MISSING, MISSING_TOO, FIELDS = range(8)
# Fields of PairState.measures: the extremes, the dual, the smallest violation so far, and the number of steps since the last
# progress.
TOP, BOTTOM, DUAL, LEAST, IDLE, MEASURES = range(6)
NO_MEMBER = -1


class PairChoice(NamedTuple):
    """The rules for jitted code: how pairs are chosen, and when to stop.

    Attributes
    ----------
    selection : int
        MVP, SECOND_ORDER, MG or HMG.
    by_gain : bool
        Whether to stop when the step of a pair of maximum gain is shorter than τ.
    rows : int
        See `PairRules`.
    tau : float
    """

    selection: int
    by_gain: bool
    rows: int
    tau: float


def number_of(selection: str) -> int:
    """Return the number by which jitted code knows a selection."""
    return look_up(SELECTION_NUMBERS, "working set selection", selection)


def pair_choice(rules: PairRules, tau: float) -> PairChoice:
    """Return the solver's parameters in the form that jitted code uses."""
    if rules.rows not in SEARCHABLE:
        raise ValueError(
            f"the rows that maximum gain searches must be 0 (all cached ones), 1 or 2. Got {rules.rows!r} instead."
        )
    return PairChoice(number_of(rules.selection), look_up(BY_GAIN, "stop", rules.stop), rules.rows, tau)


class PairState(NamedTuple):
    """The active members of a problem (those that shrinking has not left out), by their position in the list of them.

    Attributes
    ----------
    alpha, g, lower, upper : ndarray of float64, shape (n,)
    up, down : ndarray of bool, shape (n,)
    diagonal, rise, fall : ndarray of shape (n,), in the type of the kernel values
        K(x, x), B - α and α - A.
    tops, bottoms : ndarray of float64, shape (blocks,)
    gains : ndarray of shape (PAGE,), in the type of the kernel values
        Buffer for the gains of the pairs of one member with those of a block.
    narrow : ndarray of float32, shape (PAGE,)
        The same, for `gains_down`.
    pair, measures : ndarray of int64 and float64
        The current pair and the measures of progress; see the constants above for the fields.
    stride : int
        Distance between two blocks within a row of `pages`; 0 if each block has a page of its own.
    """

    alpha: Values
    g: Values
    lower: Values
    upper: Values
    up: Flags
    down: Flags
    diagonal: Floats
    rise: Floats
    fall: Floats
    tops: Values
    bottoms: Values
    gains: Floats
    narrow: NDArray[np.float32]
    pair: Ints
    measures: Values
    stride: int


def make_pair_state(
    alpha: NDArray[np.float64],
    g: NDArray[np.float64],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    diagonal: NDArray[Any],
    pair: Ints,
    measures: NDArray[np.float64],
    stride: int = 0,
) -> PairState:
    """Make the state of the given members.

    `alpha`, `g`, `pair` and `measures` are changed in place by the steps; `diagonal` has the type of the kernel values.
    """
    dtype, blocks = diagonal.dtype, blocks_of(len(alpha))
    return PairState(
        alpha=alpha,
        g=g,
        lower=lower,
        upper=upper,
        up=alpha < upper,
        down=alpha > lower,
        diagonal=diagonal,
        rise=(upper - alpha).astype(dtype),
        fall=(alpha - lower).astype(dtype),
        tops=np.full(blocks, -np.inf),
        bottoms=np.full(blocks, np.inf),
        gains=np.zeros(PAGE, dtype),
        narrow=np.zeros(PAGE, np.float32),
        pair=pair,
        measures=measures,
        stride=stride,
    )


@njit()
def refresh_extremes(state: PairState) -> None:  # pragma: no cover
    """Recompute the extremes of all blocks and the overall ones."""
    for block in range(len(state.tops)):
        start, stop = block * PAGE, min((block + 1) * PAGE, len(state.g))
        state.tops[block], state.bottoms[block] = block_extremes(state.g, state.up, state.down, start, stop)
    combine_extremes(state)


@njit()
def combine_extremes(state: PairState) -> None:  # pragma: no cover
    """Compute the overall extremes from those of the blocks."""
    state.measures[TOP], state.measures[BOTTOM] = -np.inf, np.inf
    for block in range(len(state.tops)):
        state.measures[TOP] = max(state.measures[TOP], state.tops[block])
        state.measures[BOTTOM] = min(state.measures[BOTTOM], state.bottoms[block])


@njit()
def kernel_value(state: PairState, cache: RowCache, row: int, column: int) -> float:  # pragma: no cover
    """Return K of two members; the row must be present."""
    block = column // PAGE
    return np.float64(cache.pages[cache.table[row, block], block * state.stride + column % PAGE])


@njit()
def step_of_pair(state: PairState, i: int, j: int, curvature: float) -> float:  # pragma: no cover
    """Compute the step of a pair: by how much i rises and j falls."""
    rise, fall = state.upper[i] - state.alpha[i], state.alpha[j] - state.lower[j]
    length: float = step_length(state.g[i] - state.g[j], curvature, rise, fall)
    return length


@njit()
def write_alpha(state: PairState, place: int, value: float) -> None:  # pragma: no cover
    """Write a coefficient, snapped to its box, and update the masks and distances to the bounds."""
    lower, upper = state.lower[place], state.upper[place]
    value = snapped(value, lower, upper)
    state.alpha[place] = value
    state.up[place], state.down[place] = value < upper, value > lower
    state.rise[place], state.fall[place] = upper - value, value - lower


@njit()
def near_bound(state: PairState, place: int) -> bool:  # pragma: no cover
    """Return whether a coefficient is so close to a bound that maximum gain might get stuck (paper 4, section 2.4)."""
    lower, upper = state.lower[place], state.upper[place]
    return bool(min(state.alpha[place] - lower, upper - state.alpha[place]) <= CORNER * (upper - lower))
