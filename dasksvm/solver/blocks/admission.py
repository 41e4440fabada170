"""Which examples are admitted to S, and which members with α = 0 leave it."""

import numpy as np

from dasksvm.solver.kernels.features import Flags, Values
from dasksvm.solver.state.direction_search import entry_levels
from dasksvm.solver.state.working_arrays import Working

# How far on the right side of the bias an example may lie and still be admitted, as a share of δ, the uncertainty of the bias, if
# all support vectors are at their bound.
SHARE = 0.25


def bounded_share(w: Working, places: int, problems: slice = slice(None)) -> float:
    """Return the share of the support vectors of some problems that are at their bound; the labels are noisy if it is large."""
    support: Flags = w.alpha[problems, :places] != 0.0
    free: Flags = support & w.up[problems, :places] & w.down[problems, :places]
    return 1.0 - int(np.count_nonzero(free)) / max(int(np.count_nonzero(support)), 1)


def admission_levels(w: Working, places: int, small: int) -> tuple[Values, Values]:
    """Compute the levels of each problem: negative examples below `upper` and positive ones above `lower` are admitted.

    LASVM admits an example if it violates with an extreme member, that is if y (g - b) > -δ / 2 for the bias b half-way between
    the extremes. Between two batches δ is large, and nearly all examples would be admitted to leave S later. So the levels lie
    nearer to the bias, for which the mean gradient of the free support vectors is the better estimate. How near depends on the
    share of the support vectors that are at their bound: a free one holds the decision values around it in place, whereas with
    noisy labels, where most are at their bound, an example that does not violate now often does so later. While S has fewer
    than `small` members, admitting too many costs little, and the rule is LASVM's.

    Parameters
    ----------
    w : Working
    places : int
        Number of places in use.
    small : int

    Returns
    -------
    upper, lower : ndarray of float64, shape (P,)
    """
    found = np.empty((len(w.alpha), 2))
    for p in range(len(found)):
        top, bottom = float(w.top[p].max()), float(w.bottom[p].min())
        if w.counts[p, 0] < small or not -np.inf < bottom <= top < np.inf:
            found[p] = entry_levels(top, bottom)
            continue
        free: Flags = w.up[p, :places] & w.down[p, :places]
        middle, reach = (top + bottom) / 2, SHARE * bounded_share(w, places, slice(p, p + 1)) * (top - bottom)
        bias = min(max(float(w.g[p, :places][free].mean()), bottom), top) if free.any() else middle
        found[p] = bias + reach, bias - reach
    return found[:, 0].copy(), found[:, 1].copy()
