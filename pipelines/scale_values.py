"""What kernel values, steps and bookkeeping cost in one process, without a cluster."""

import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dasksvm import Dataset, LaSVC, train
from dasksvm.config.blas import one_thread
from dasksvm.data.sources import DatasetSource
from dasksvm.data.statistics import ScaleWarning
from dasksvm.solver.blocks.keeping import can_keep
from dasksvm.solver.kernels.features import DenseFeatures
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.kernels.uniform import TILE_ROWS
from dasksvm.solver.lasvm.finishing import solve_block
from dasksvm.training.timings import PARTS, Timings
from pipelines.costs import TILE, TILES, least_seconds, tile_ns
from pipelines.scale_trace import Step, Traced, default_shape

# Rows of the runs that show what kernel values cost, and the noise of their labels.
RUN_ROWS, NOISE = 10_000, 0.2
MEASURED = ("tiling", "updating", "storing", "squaring", "shifting")
# Sizes of the working sets in which steps are measured, and the most steps in each of them.
SIZES, STEPS = (256, 512, 1024, 2048, 4096, 8192), 3000
# Rows of the runs in two dimensions that show what bookkeeping costs, and how far apart their classes are: the first run has few
# members, the second nearly all rows.
ROWS, SHIFTS = 12000, (2.0, 0.0)


@dataclass(frozen=True)
class ValueCosts:
    """What kernel values of rows of one width cost one thread, in nanoseconds.

    Attributes
    ----------
    tile, together : float
        A value of a bare tile, for one thread alone and for each of two threads at the same time.
    score, update, sum, square : float
        A value that is computed for a decision value of a batch, to bring candidates up to date, for a move of gradients, and for
        a square.
    store : float
        A value that is computed and kept between two rounds, with its share of those that are copied; 0 if values of this width
        are not kept.
    kept, gather : float
        A kept value that is used in a weighted sum, and in a square; 0 if values of this width are not kept.
    read : float
        A row that is read from a data set and made ready for the kernel.
    """

    tile: float
    together: float
    score: float
    update: float
    sum: float
    square: float
    store: float
    kept: float
    gather: float
    read: float

    @property
    def crowding(self) -> float:
        """How many times as long a thread takes while another one is busy."""
        return max(self.together / self.tile, 1.0)


def tile_ns_together(features: int) -> float:
    """Measure the same as `tile_ns` for each of two threads that compute tiles at the same time."""
    rng = np.random.default_rng(0)
    rows, columns = (DenseFeatures.of(rng.random((count, features), np.float32)) for count in TILE)
    kernel, outs = Kernel("rbf", 1.0 / features), [np.empty(TILE, np.float32) for _ in range(2)]

    def several(out: np.ndarray) -> None:
        for _ in range(TILES):
            kernel.tile(rows, columns, out=out)

    with one_thread(), ThreadPoolExecutor(2) as pool:
        seconds = least_seconds(lambda: list(pool.map(several, outs)), 3)
    return 1e9 * seconds / (TILES * outs[0].size)


def value_costs(width: int) -> ValueCosts:
    """Measure what kernel values of rows with `width` features cost in each part of the work.

    One thread trains on rows drawn at random, and the time of each part is divided by the kernel values that it used. So a cost
    has its share of what comes with values, such as finding those that are kept.
    """
    runs = [_run(width) for _ in range(3)][1:]  # the first one compiles
    steps, found = runs[0][0], {name: min(getattr(each, name) for _, each in runs) for name in MEASURED}
    shifts = [shift for step in steps for shift in step.shifts]
    values = {name: max(sum(getattr(step, name) for step in steps), 1) for name in ("updated", "stored", "squared")}
    update, squares = found["updating"] / values["updated"], sum(step.size**2 for step in steps)
    with one_thread():
        tile, together, read = tile_ns(width), tile_ns_together(width), _read_ns(width)
    costs = {"score": found["tiling"] / sum(step.rows * step.support for step in steps), "update": update}
    if can_keep(Kernel("rbf"), DenseFeatures.of(np.zeros((1, width), np.float32))):
        kept = found["shifting"] / sum(shift.rows * shift.changed for shift in shifts)
        costs |= {"store": found["storing"] / values["stored"], "kept": kept, "gather": found["squaring"] / squares}
        costs |= {"sum": update, "square": update}
    else:
        costs |= {"store": 0.0, "kept": 0.0, "gather": 0.0, "square": found["squaring"] / values["squared"]}
        costs["sum"] = found["shifting"] / sum(shift.computed for shift in shifts)
    in_ns = {name: 1e9 * seconds for name, seconds in costs.items()}
    return ValueCosts(tile=tile, together=together, read=read, **in_ns)


def _run(width: int) -> tuple[list[Step], Timings]:
    """Train on noisy rows of a width."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(RUN_ROWS, width)).astype(np.float32)
    X[:, :3] *= np.sqrt(width) / 2
    y = X[:, 0] + np.abs(X[:, 1]) + NOISE * rng.normal(size=RUN_ROWS) * np.sqrt(width) > np.sqrt(width) / 2
    estimator = Traced(gamma=1.0 / width, engine="blocks", random_state=0)
    estimator.shape = default_shape()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScaleWarning)
        estimator._fit(X, y, None, ())
    return estimator.steps, estimator.timings


def _read_ns(width: int) -> float:
    """Measure the reading of a row in batches from a data set on disk."""
    rng, count = np.random.default_rng(0), 8 * TILE_ROWS
    with tempfile.TemporaryDirectory() as folder:
        X, y = rng.random((count, width), np.float32), np.arange(count) % 2
        source = DatasetSource(Dataset.create(Path(folder) / "rows.zarr", X, y, random_state=0))

        def read() -> None:
            for start in range(0, count, TILE_ROWS):
                DenseFeatures.of(np.asarray(source.raw(np.arange(start, start + TILE_ROWS)), np.float32))

        return 1e9 * least_seconds(read, 1) / count


def inner_costs() -> dict[int, float]:
    """Measure the seconds of a step within a working set, by its size: more than in proportion where it leaves the cache."""
    rng = np.random.default_rng(0)
    found = {}
    for size in SIZES:
        rows = DenseFeatures.of(rng.random((size, 8), np.float32))
        square, sign = Kernel("rbf", 1.0).tile(rows, rows), np.where(rng.random(size) < 0.5, -1.0, 1.0)
        times = []
        for _ in range(5):
            alpha, g = np.zeros(size), sign.copy()
            start = time.perf_counter()
            steps = solve_block(square, alpha, g, np.minimum(sign, 0.0), np.maximum(sign, 0.0), 1e-6, STEPS)
            times.append((time.perf_counter() - start) / steps)
        found[size] = min(times)
    return found


def bookkeeping_costs() -> tuple[float, float]:
    """Measure what the learner spends apart from kernel values and steps: seconds of each result, and for each member.

    It trains on rows in two dimensions, once with few members and once with many.
    """
    counts, seconds = [], []
    for shift in SHIFTS:
        rng = np.random.default_rng(0)
        y = np.where(rng.random(ROWS) < 0.5, 1, -1)
        X = (rng.normal(size=(ROWS, 2)) + shift * y[:, None]).astype(np.float32)
        estimator = LaSVC(gamma=1.0, engine="blocks", epochs=1, random_state=0)
        runs = [train((X, y), estimator) for _ in range(3)]  # the first one compiles
        counts.append([len(runs[0].history), sum(entry["support_vectors"] for entry in runs[0].history)])
        seconds.append(min(_bookkeeping(run.timings) for run in runs))
    each, per_member = np.linalg.solve(np.array(counts, np.float64), np.array(seconds))
    return max(float(each), 0.0), max(float(per_member), 0.0)


def _bookkeeping(found: Timings) -> float:
    """Return the time of applying results and making plans that is in none of their parts."""
    return found.taking + found.submitting - sum(float(getattr(found, part)) for part in PARTS)
