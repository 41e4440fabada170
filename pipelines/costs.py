"""What a kernel value costs on this machine."""

import time
from collections.abc import Callable

import numpy as np

from dasksvm.config.blas import one_thread
from dasksvm.solver.kernels.features import DenseFeatures
from dasksvm.solver.kernels.kernel import Kernel

# Shape of the tiles that are measured, and how many of each there are.
TILE, TILES = (512, 4096), 20


def least_seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the shortest of some times of a function."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def tile_ns(features: int) -> float:
    """Measure the nanoseconds that one core needs for an RBF kernel value in a bare tile: nothing is kept or added up."""
    rng = np.random.default_rng(0)
    rows, columns = (DenseFeatures.of(rng.random((count, features), np.float32)) for count in TILE)
    kernel, out = Kernel("rbf", 1.0 / features), np.empty(TILE, np.float32)
    with one_thread():
        return 1e9 * least_seconds(lambda: kernel.tile(rows, columns, out=out), TILES) / out.size
