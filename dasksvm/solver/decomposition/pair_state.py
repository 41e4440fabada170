"""What steps in pairs work on: the members in play, where the steps stand, and the smallest operations on them."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.decomposition.rules import CORNER, PairRules
from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.registry import look_up
from dasksvm.solver.state.direction_search import block_extremes, snapped, step_length
from dasksvm.solver.state.row_cache import PAGE, blocks_of

# Selections, as jitted code knows them.
MVP, SECOND_ORDER, MG, HMG = range(4)
SELECTION_NUMBERS = {"mvp": MVP, "second-order": SECOND_ORDER, "mg": MG, "hmg": HMG}
# Whether pairs of maximum gain end where their step is short.
BY_GAIN = {"kkt": False, "gain": True}
# Rows that maximum gain can search: all that are cached, one of the pair before, both.
SEARCHABLE = (0, 1, 2)
# How steps end: all are made, a row is missing, the stop is reached, there is no gain with the pair before, or none but rounding.
GO, ROW_MISSING, AT_REST, STUCK, EXHAUSTED = range(5)
# Fields of Play.at: the next pair, who of it was not in the pair before, the pair before, and rows that are missing.
RISING, FALLING, FRESH, KEPT, NEW, MISSING, MISSING_TOO, FIELDS = range(8)
# Fields of Play.now: the extremes, the dual, the least violation so far, and the steps since something came of them.
TOP, BOTTOM, DUAL, LEAST, IDLE, NUMBERS = range(6)
NOWHERE = -1


class How(NamedTuple):
    """How pairs are chosen, and until when.

    Attributes
    ----------
    selection : int
        MVP, SECOND_ORDER, MG or HMG.
    by_gain : bool
        Whether pairs of maximum gain end where their step is below τ.
    rows : int
        See `PairRules`.
    tau : float
    """

    selection: int
    by_gain: bool
    rows: int
    tau: float


def number_of(selection: str) -> int:
    """Give the number by which jitted code knows a selection."""
    return look_up(SELECTION_NUMBERS, "working set selection", selection)


def how_of(rules: PairRules, tau: float) -> How:
    """Give what jitted code has to know of what the user set."""
    if rules.rows not in SEARCHABLE:
        raise ValueError(
            f"the rows that maximum gain searches must be 0 (all cached ones), 1 or 2. Got {rules.rows!r} instead."
        )
    return How(number_of(rules.selection), look_up(BY_GAIN, "stop", rules.stop), rules.rows, tau)


class Play(NamedTuple):
    """The members in play of a problem, by their order.

    Attributes
    ----------
    alpha, g, lower, upper : ndarray of float64, shape (n,)
    up, down : ndarray of bool, shape (n,)
    diagonal, rise, fall : ndarray of shape (n,), in the type of the kernel values
        K(x, x), B - α and α - A.
    tops, bottoms : ndarray of float64, shape (blocks,)
    gains : ndarray of shape (PAGE,), in the type of the kernel values
        Of a block with one row.
    narrow : ndarray of float32, shape (PAGE,)
        The same for `gains_down`.
    at, now : ndarray of int64 and float64
        See the fields.
    stride : int
        Distance between two blocks in `pages`: 0 where each has a page of its own.
    """

    alpha: Any
    g: Any
    lower: Any
    upper: Any
    up: Any
    down: Any
    diagonal: Any
    rise: Any
    fall: Any
    tops: Any
    bottoms: Any
    gains: Any
    narrow: Any
    at: Any
    now: Any
    stride: int


def make_play(
    alpha: NDArray[np.float64],
    g: NDArray[np.float64],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    diagonal: NDArray[Any],
    at: Ints,
    now: NDArray[np.float64],
    stride: int = 0,
) -> Play:
    """Bring members into play; `alpha`, `g`, `at` and `now` are changed in place, and the type of `diagonal` is the kernel's."""
    dtype, blocks = diagonal.dtype, blocks_of(len(alpha))
    return Play(
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
        at=at,
        now=now,
        stride=stride,
    )


@njit()
def look(play: Any) -> None:  # pragma: no cover
    """Compute the extremes anew."""
    for block in range(len(play.tops)):
        start, stop = block * PAGE, min((block + 1) * PAGE, len(play.g))
        play.tops[block], play.bottoms[block] = block_extremes(play.g, play.up, play.down, start, stop)
    join(play)


@njit()
def join(play: Any) -> None:  # pragma: no cover
    """Compute the extremes from those of the blocks."""
    play.now[TOP], play.now[BOTTOM] = -np.inf, np.inf
    for block in range(len(play.tops)):
        play.now[TOP] = max(play.now[TOP], play.tops[block])
        play.now[BOTTOM] = min(play.now[BOTTOM], play.bottoms[block])


@njit()
def kernel_value(play: Any, cache: Any, row: int, column: int) -> float:  # pragma: no cover
    """K of two members; the row must be present."""
    block = column // PAGE
    return np.float64(cache.pages[cache.table[row, block], block * play.stride + column % PAGE])


@njit()
def length_of(play: Any, i: int, j: int, curvature: float) -> float:  # pragma: no cover
    """How far i rises and j falls."""
    rise, fall = play.upper[i] - play.alpha[i], play.alpha[j] - play.lower[j]
    length: float = step_length(play.g[i] - play.g[j], curvature, rise, fall)
    return length


@njit()
def write(play: Any, place: int, value: float) -> None:  # pragma: no cover
    """Write a coefficient, snapped to its box, and what follows from it."""
    lower, upper = play.lower[place], play.upper[place]
    value = snapped(value, lower, upper)
    play.alpha[place] = value
    play.up[place], play.down[place] = value < upper, value > lower
    play.rise[place], play.fall[place] = upper - value, value - lower


@njit()
def cornered(play: Any, place: int) -> bool:  # pragma: no cover
    """Tell whether a coefficient is so near a bound that maximum gain might stick (paper 4, section 2.4)."""
    lower, upper = play.lower[place], play.upper[place]
    return bool(min(play.alpha[place] - lower, upper - play.alpha[place]) <= CORNER * (upper - lower))
