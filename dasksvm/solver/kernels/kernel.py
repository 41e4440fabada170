"""A kernel function with its parameters, and the tiles of its values; a row is a tile of one row, a value a tile of one.

Each kernel function is a module of this package, listed in `registry`.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.kernels.features import DenseFeatures, Features, Floats, Ints, SparseFeatures
from dasksvm.solver.kernels.formula import Formula
from dasksvm.solver.kernels.registry import KERNELS
from dasksvm.solver.memory import Workspace

BLOCK_ROWS = 512
BLOCK_COLUMNS = 1024
DENSE_BYTES = 4 << 20
# Seconds of a thread for each feature of dense rows, for each number of a sparse row, and for the rest of a kernel value.
DENSE_FEATURE, SPARSE_FEATURE, VALUE = 0.02e-9, 0.1e-9, 0.4e-9


@dataclass(frozen=True)
class Kernel:
    """A kernel function with its parameters.

    Attributes
    ----------
    name : str
        One of `registry.KERNELS`.
    gamma, coef0 : float
        γ and c.
    degree : int
        p.
    """

    name: str
    gamma: float = 1.0
    coef0: float = 0.0
    degree: int = 3

    @property
    def formula(self) -> Formula:
        """The kernel function with this name."""
        return KERNELS.find(self.name)

    def seconds(self, features: Features) -> float:
        """Estimate how long a kernel value of such rows takes on one thread."""
        if isinstance(features, SparseFeatures):
            return VALUE + SPARSE_FEATURE * len(features.data) / max(len(features), 1)
        return VALUE + DENSE_FEATURE * self.formula.cost * features.width

    def diagonal(self, rows: Features) -> NDArray[np.float64]:
        """Compute K(x, x) of each row in float64, shape (n,)."""
        return self.formula.diagonal(self, rows.squares.astype(np.float64))

    def tile(
        self,
        rows: Features,
        columns: Features,
        order: Ints | None = None,
        out: Floats | None = None,
        workspace: Workspace | None = None,
    ) -> Floats:
        """Compute K(rows, columns[order]), shape (rows, columns), in the type of the features.

        The same arguments give the same bits whatever else runs: the blocks depend on the shapes and the non-zeros alone.
        """
        width = len(columns) if order is None else len(order)
        if out is None:
            out = np.empty((len(rows), width), rows.dtype)
        for left, right in column_blocks(width, len(rows)):
            part = columns.part(left, right) if order is None else columns.take(order[left:right], workspace)
            self.block(rows, part, out, left)
        return out

    def block(self, rows: Features, columns: Features, out: Floats, left: int) -> None:
        """Fill out[:, left : left + len(columns)] with K(rows, columns), by blocks of rows that stay in the cache."""
        step, formula = BLOCK_ROWS, self.formula
        if isinstance(rows, SparseFeatures):
            step = _dense_rows(rows, out.itemsize)
        for top in range(0, len(rows), step):
            part, tile = rows.part(top, min(top + step, len(rows))), out[top : top + step]
            if isinstance(part, SparseFeatures):
                assert isinstance(columns, SparseFeatures)
                formula.sparse(self, part, columns, tile, left)
            else:
                assert isinstance(columns, DenseFeatures)
                formula.dense(self, part, columns, tile, left)


def column_blocks(width: int, height: int) -> list[tuple[int, int]]:
    """Cut the columns of a tile into the blocks in which it is computed: wide ones where the rows are few."""
    step = max(BLOCK_COLUMNS, BLOCK_ROWS * BLOCK_COLUMNS // max(height, 1))
    return [(left, min(left + step, width)) for left in range(0, width, step)]


def _dense_rows(rows: SparseFeatures, itemsize: int) -> int:
    """Count the rows that fit the cache when they are made dense in the columns that some of them use."""
    values = DENSE_BYTES // itemsize
    in_all_columns = values // max(rows.width, 1)
    in_their_own = math.isqrt(values * max(len(rows), 1) // max(len(rows.data), 1))
    return min(max(in_all_columns, in_their_own, 1), BLOCK_ROWS)
