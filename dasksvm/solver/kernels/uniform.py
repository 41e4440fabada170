"""Tiles in which a kernel value has the same bits wherever it stands.

A matrix product of BLAS adds the products of a value in an order that can depend on where the value stands in the tile: the AVX2
kernels of OpenBLAS (Haswell, Zen) treat the first and the last eight columns of a block differently, and the rows beyond a
multiple of twelve. So tiles get a number of rows that is a multiple of 48, and a border of columns whose values are not used,
where a test of the BLAS in use shows that this is needed. If no shape passes the test, kernel values must not be kept, because a
model would depend on which of them are.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dasksvm.solver.kernels.features import DenseFeatures, Features, Floats, Ints
from dasksvm.solver.kernels.formula import DotProductFormula
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.memory import Workspace

# Columns of a tile, without its borders.
STRIP = 256
# Largest number of rows of a tile.
TILE_ROWS = 480


class TileShape(NamedTuple):
    """The shape of tiles.

    Attributes
    ----------
    multiple : int
        The number of rows is a multiple of this.
    border : int
        Number of unused columns on both sides.
    uniform : bool
        Whether a value has the same bits wherever it stands in tiles of this shape, and K(x, x') those of K(x', x).
    """

    multiple: int
    border: int
    uniform: bool

    @property
    def width(self) -> int:
        """Number of columns, with both borders."""
        return STRIP + 2 * self.border

    def rows(self, features: Features, at: Ints, workspace: Workspace) -> Features:
        """Return some rows, followed by repetitions of the last one until their number is a multiple of `multiple`."""
        first, count = int(at[0]), len(at) + -len(at) % self.multiple
        if first + count <= len(features) and _consecutive(at):
            return features.part(first, first + count)  # what follows serves as padding
        padded = np.concatenate([at, np.repeat(at[-1:], count - len(at))])
        return features.take(padded, workspace, "rows")

    def columns(self, features: Features, at: Ints, workspace: Workspace) -> Features:
        """Return up to STRIP rows as the columns of a tile, with borders, which repeat the first and the last one."""
        first = int(at[0]) - self.border
        if first >= 0 and first + self.width <= len(features) and _consecutive(at):
            return features.part(first, first + self.width)
        right = self.width - self.border - len(at)
        padded = np.concatenate([np.repeat(at[:1], self.border), at, np.repeat(at[-1:], right)])
        return features.take(padded, workspace, "columns")

    def tile(self, kernel: Kernel, rows: Features, columns: Features, workspace: Workspace) -> Floats:
        """Compute a tile of the rows and columns that `rows` and `columns` returned; the next one overwrites it."""
        values: Floats = workspace.array("tile", (len(rows), len(columns)), rows.dtype)
        kernel.block(rows, columns, values, 0)
        return values


def _consecutive(at: Ints) -> bool:
    return int(at[-1]) - int(at[0]) == len(at) - 1 and bool(np.all(np.diff(at) == 1))


# The shapes to try, the cheapest one first.
SHAPES = (TileShape(16, 0, True), TileShape(48, 8, True))
VARYING = TileShape(16, 0, False)


def shape_of_tiles(kernel: Kernel, features: Features) -> TileShape:
    """Return the shape of tiles of a kernel; it depends on the CPU type, never on the data."""
    if isinstance(features, DenseFeatures) and isinstance(kernel.formula, DotProductFormula):
        return _shape_of_products(features.width, features.dtype)
    return SHAPES[0]


@lru_cache(maxsize=64)
def _shape_of_products(width: int, dtype: np.dtype[Any]) -> TileShape:
    return next((shape for shape in SHAPES if is_uniform(shape, width, dtype)), VARYING)


def is_uniform(shape: TileShape, width: int, dtype: np.dtype[Any]) -> bool:
    """Test whether the product of the same two vectors has the same bits at all places of a tile, also if they are exchanged.

    BLAS must be limited to one thread, as it is wherever tiles are computed: with two, a tile is cut into other blocks.
    The numbers have very different sizes, so that another order of the additions almost surely gives another sum.
    """
    generator = np.random.default_rng(0)
    for rows in (shape.multiple, 3 * shape.multiple, TILE_ROWS):
        for _ in range(3):
            left, right = (
                (generator.standard_normal(width) * 2.0 ** generator.integers(-6, 7, width)).astype(dtype)
                for _ in range(2)
            )
            used = []
            for row, column in ((left, right), (right, left)):
                products = np.matmul(np.tile(row, (rows, 1)), np.tile(column, (shape.width, 1)).T)
                used.append(products[:, shape.border : shape.border + STRIP])
            if any(np.any(each != used[0][0, 0]) for each in used):
                return False
    return True


def fill_uniformly(kernel: Kernel, rows: Features, columns: Features, out: Floats, workspace: Workspace) -> None:
    """Fill `out`, of shape (rows, columns), with kernel values that do not depend on what else is computed with them."""
    shape = shape_of_tiles(kernel, rows)
    lines, at = np.arange(len(rows)), np.arange(len(columns))
    for top in range(0, len(rows), TILE_ROWS):
        part = shape.rows(rows, lines[top : top + TILE_ROWS], workspace)
        for left in range(0, len(columns), STRIP):
            strip = shape.columns(columns, at[left : left + STRIP], workspace)
            target = out[top : top + TILE_ROWS, left : left + STRIP]
            values = shape.tile(kernel, part, strip, workspace)
            target[:] = values[: len(target), shape.border : shape.border + target.shape[1]]
