"""Jaakkola's heuristic for γ, the width parameter of kernels such as rbf (paper 5, section 4.3.2)."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.metrics.pairwise import manhattan_distances
from sklearn.utils import check_random_state

from dasksvm.data.array_types import ColumnLike, RandomState, RowsLike
from dasksvm.data.chunked import is_sparse
from dasksvm.data.sources import Form
from dasksvm.estimators.lasvc import LaSVC
from dasksvm.estimators.problem import read_problem
from dasksvm.solver.kernels.features import Features, Ints, SparseFeatures
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.kernels.registry import KERNELS

# Rows and columns of a tile of distances: anchors, and the other examples.
TILE = (500, 4000)
# There are this many times as many other examples as anchors.
OTHERS = 10


def jaakkola_gamma(
    X: RowsLike,
    y: ColumnLike | None = None,
    *,
    sample: int = 2000,
    kernel: str = "rbf",
    random_state: RandomState = None,
) -> float:
    """Estimate γ of a kernel by Jaakkola's heuristic (paper 5, section 4.3.2).

    γ = 1 / (2σ²), where σ is the median over the examples of the distance to the nearest example of another class. Distances of
    0, between equal rows of different classes, are left out. For laplacian, γ = 1 / (2σ), and the distance is the sum of the
    absolute differences of the features: with both kernels, K = exp(-1/2) for rows at the distance σ.

    Parameters
    ----------
    X : ndarray, csr_matrix or dask.array.Array of shape (n, d), Dataset or its path
        The scaling that is stored in a data set is applied.
    y : array of shape (n,)
        Labels of any type that can be sorted. Must be None for a data set, which has its own labels.
    sample : int, default=2000
        Number of random examples whose distances are measured. The nearest example is searched among ten times as many, with
        the same number from each class as far as possible. Smaller sets are used completely.
    kernel : str, default="rbf"
        The kernel that γ is for. Its `deviation_order` says which distance is used.
    random_state : int, RandomState or None, default=None
        Seed for the choice of these examples.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If every example equals an example of another class.

    Examples
    --------
    >>> from dasksvm import jaakkola_gamma
    >>> jaakkola_gamma([[0.0], [1.0], [3.0]], ["a", "b", "b"])
    0.5
    """
    if sample < 1:
        raise ValueError(f"sample must be at least 1, got {sample!r}.")
    order_of_distance = KERNELS.find(kernel).deviation_order
    problem = read_problem(LaSVC(), X, y, None, reset=True)
    source, order = problem.source, check_random_state(random_state).permutation(len(problem.columns))
    codes = problem.columns.codes(np.arange(len(order)))
    anchors, others = np.sort(order[:sample]), np.sort(_level(order, codes)[: OTHERS * sample])
    here, there = source.raw(anchors), source.raw(others)
    centre = None if source.sparse else there.mean(axis=0, dtype=np.float64)
    form = Form(np.dtype(np.float64), source.scaling, centre, source.sparse)
    nearest = _nearest_strangers(form.apply(here), codes[anchors], form.apply(there), codes[others], order_of_distance)
    # Computed again from the rows, because |x|² - 2x·x' + |x'|² is not exactly 0 for equal rows.
    apart = here.astype(np.float64) - there[nearest].astype(np.float64)
    if source.scaling is not None:
        factor = source.scaling.factor
        apart = apart.multiply(factor) if is_sparse(apart) else apart * factor
    if order_of_distance == 1:
        distances = np.asarray(abs(apart).sum(axis=1)).ravel()
    else:
        distances = np.sqrt(
            np.asarray((apart.multiply(apart) if is_sparse(apart) else apart * apart).sum(axis=1)).ravel()
        )
    distances = distances[distances > 0]
    if not len(distances):
        raise ValueError(
            "Jaakkola's heuristic found no distance above 0: every sampled example equals an example of another class."
        )
    return float(0.5 / np.median(distances) ** order_of_distance)


def _level(order: Ints, codes: Ints) -> Ints:
    """Order rows so that the first ones have the same number from each class, as long as a class has rows left."""
    grouped = np.argsort(codes[order], kind="stable")
    sizes = np.bincount(codes)
    within = np.empty(len(order), np.int64)
    within[grouped] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return order[np.argsort(within, kind="stable")]


def _nearest_strangers(rows: Features, codes: Ints, others: Features, classes: Ints, order: int) -> Ints:
    """Find for each row the nearest of the others that belongs to another class."""
    nearest = np.zeros(len(rows), np.int64)
    best = np.full(len(rows), np.inf)
    for left in range(0, len(others), TILE[1]):
        columns, labels = others.part(left, left + TILE[1]), classes[left : left + TILE[1]]
        for top in range(0, len(rows), TILE[0]):
            part = rows.part(top, top + TILE[0])
            sums = _sums_of_powers(part, columns, order)
            sums[codes[top : top + TILE[0], None] == labels] = np.inf
            found = sums.argmin(axis=1)
            least = sums[np.arange(len(found)), found]
            closer = np.flatnonzero(least < best[top : top + TILE[0]])
            best[top + closer], nearest[top + closer] = least[closer], left + found[closer]
    return nearest


def _sums_of_powers(rows: Features, columns: Features, order: int) -> NDArray[np.float64]:
    """Compute Σ |x - x'|^order over the features, for all rows x and columns x'."""
    match order:
        case 1:
            found: NDArray[np.float64] = manhattan_distances(_matrix(rows), _matrix(columns))
            return found
        case 2:
            return rows.squares[:, None] + columns.squares - 2.0 * Kernel("linear").tile(rows, columns)
        case _:
            raise ValueError(f"unknown order of deviation {order!r}: it must be 1 or 2.")


def _matrix(rows: Features) -> Any:
    if not isinstance(rows, SparseFeatures):
        return rows.values
    return sp.csr_matrix((rows.data, rows.indices, rows.indptr), shape=(len(rows), rows.width))
