"""What kernel values, steps and bookkeeping cost in one process, each measured in isolation.

This is not part of `pipelines.costs`, because what it imports would count as memory of other solvers in `pipelines.compare`.
"""

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from dasksvm import Dataset, LaSVC, train
from dasksvm.config.blas import one_thread
from dasksvm.config.workspaces import Workspaces
from dasksvm.data.sources import DatasetSource
from dasksvm.solver.blocks.expansion import BlockExpansion
from dasksvm.solver.blocks.keeping import can_keep
from dasksvm.solver.blocks.pieces import PIECE_ROWS, some_sums
from dasksvm.solver.decomposition.intake import view_for_intake
from dasksvm.solver.engine.choice import execute
from dasksvm.solver.kernels.features import DenseFeatures
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.kernels.uniform import TILE_ROWS
from dasksvm.solver.lasvm.finishing import solve_block
from dasksvm.solver.memory import Workspace
from dasksvm.solver.messages import ScorePlan, SumsPlan, Targets, View
from dasksvm.training.timings import Timings
from pipelines.costs import TILE, TILES, least_seconds, tile_ns

# Members for which the values of rounds are measured, and those of a working set.
MEMBERS, CHOSEN = 4096, 1024
# Sizes of the working sets in which steps are measured, and the most steps in each of them.
SIZES, STEPS = (256, 512, 1024, 2048, 4096, 8192), 3000
# Rows of the runs in two dimensions that show what bookkeeping costs, and how far apart their classes are: the first run has few
# members, the second nearly all rows.
ROWS, SHIFTS = 6000, (2.0, 0.0)


@dataclass(frozen=True)
class ValueCosts:
    """What kernel values of rows of one width cost one thread, in nanoseconds.

    Attributes
    ----------
    tile, together : float
        A value of a bare tile, for one thread alone and for each of two threads at the same time.
    score, sum, square : float
        A value that is computed for a decision value of a batch, for a weighted sum, and for a square.
    store : float
        A value that is computed and kept; 0 if values of this width are not kept.
    kept, gather : float
        A kept value that is used in a weighted sum, and in a square; 0 if values of this width are not kept.
    read : float
        A row that is read from a data set and made ready for the kernel.
    """

    tile: float
    together: float
    score: float
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
    """Measure what kernel values of rows with `width` features cost in each part of the work."""
    s = members_of(width, MEMBERS)
    kernel, members, per_value = s.kernel, s.members(), 1e9 / (MEMBERS * CHOSEN)
    uniform = can_keep(kernel, members)
    places, everybody, amounts = np.arange(CHOSEN), np.ones(MEMBERS, np.bool_), np.ones((1, CHOSEN))
    plan, workspace = SumsPlan(members, s.generation, s.order(), s.order()[places], amounts, uniform), Workspace()
    gradients = np.zeros((1, MEMBERS))
    store = kept = gather = 0.0
    with one_thread():
        some_sums(kernel, plan, 0, 1, workspace)  # compiles, and tests the shape of tiles
        summed = least_seconds(lambda: some_sums(kernel, plan, 0, MEMBERS // PIECE_ROWS, workspace), 3)
        s.kernel_values.begin_round(s, everybody)
        if uniform:

            def keep() -> None:
                s.release_rows()
                s.kernel_values.begin_round(s, everybody)
                s.kernel_values.complete(s, places)

            store = per_value * least_seconds(keep, 2)
            move = partial(s.kernel_values.move_gradients, s, gradients, everybody, places, amounts)
            kept = per_value * least_seconds(move, 3)
            gather = 1e9 * least_seconds(lambda: s.kernel_values.squares(s, [places]), 3) / CHOSEN**2
            s.release_rows()
            s.kernel_values.begin_round(s, everybody)
        square = 1e9 * least_seconds(lambda: s.kernel_values.squares(s, [places]), 3) / CHOSEN**2
        score = _score_ns(s, uniform)
        tile, together, read = tile_ns(width), tile_ns_together(width), _read_ns(width)
    return ValueCosts(tile, together, score, per_value * summed, square, store, kept, gather, read)


def members_of(width: int, count: int) -> BlockExpansion:
    """Make an expansion of random members with α = 1 for half of them and -1 for the others."""
    rng = np.random.default_rng(0)
    s = BlockExpansion(Kernel("rbf", 1.0 / width), 1, 1 << 30)
    features = DenseFeatures.of(rng.random((count, width), np.float32))
    sign, codes = np.where(np.arange(count) % 2, -1.0, 1.0)[None], np.arange(count) % 2
    targets = Targets(codes, sign, np.ones((1, count)))
    plan = ScorePlan(0, np.arange(count), view_for_intake(0, 1))
    result = execute(plan, s.kernel, features, targets, Workspace())
    s.make_room(result)
    s.add_members(result, sign, np.ones((1, count), np.bool_), np.full(count, -1))
    return s


def _score_ns(s: BlockExpansion, uniform: bool) -> float:
    """Measure a value of a batch that is scored against the members, of which no row is returned."""
    rng, count, width = np.random.default_rng(1), TILE_ROWS, s.members().width
    features, ones = DenseFeatures.of(rng.random((count, width), np.float32)), np.ones((1, count))
    view: View = replace(s.view(0, None, np.full(1, -np.inf), 0.0), kernel_rows="useful" if uniform else "unused")
    targets, workspaces = Targets(np.zeros(count, np.int64), ones, ones), Workspaces()

    def score() -> None:
        # A new view, because a view keeps the features of its support vectors.
        plan = ScorePlan(0, np.arange(count), replace(view))
        execute(plan, s.kernel, features, targets, workspaces.of_this_thread())

    return 1e9 * least_seconds(score, 4) / (count * len(view.order))


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
        train((X, y), estimator)  # compiles
        run = train((X, y), estimator)
        counts.append([len(run.history), sum(entry["support_vectors"] for entry in run.history)])
        seconds.append(_bookkeeping(run.timings))
    each, per_member = np.linalg.solve(np.array(counts, np.float64), np.array(seconds))
    return max(float(each), 0.0), max(float(per_member), 0.0)


def _bookkeeping(found: Timings) -> float:
    """Return the time of applying results and making plans that is in none of their parts."""
    parts = found.updating + found.storing + found.squaring + found.solving + found.shifting + found.verifying
    return found.taking + found.submitting - parts
