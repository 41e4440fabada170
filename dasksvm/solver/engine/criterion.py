"""The criteria that choose the next example from a pool (paper 1, section 4)."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dasksvm.solver.kernels.features import Values


class Criterion(NamedTuple):
    """A selection criterion.

    Attributes
    ----------
    measure : callable, or None
        Called with decision values and labels (1, -1, or 0 for examples that are not part of a problem), both of shape (P, m).
        The candidate with the smallest result in any problem is processed next. None: examples come in random order.
    labels : bool
        Whether the measure depends on the labels.
    adaptive : bool
        Whether a pool ends early, once it has a few examples near the boundary (paper 1, section 4.4).
    """

    measure: Callable[[Values, Values], Values] | None
    labels: bool
    adaptive: bool


def _margin(decision: Values, sign: Values) -> Values:
    """Return y f(x), which is inf for examples that are not part of a problem (paper 1, section 4.1)."""
    found: Values = np.where(sign == 0, np.inf, decision * sign)
    return found


def _distance(decision: Values, sign: Values) -> Values:
    """Return |f(x)|, the distance from the boundary (paper 1, section 4.2)."""
    return np.abs(decision)


RANDOM_ORDER = Criterion(None, labels=False, adaptive=False)
GRADIENT = Criterion(_margin, labels=True, adaptive=False)
ACTIVE = Criterion(_distance, labels=False, adaptive=False)
AUTOACTIVE = Criterion(_distance, labels=False, adaptive=True)
