"""Table 1 of paper 2: on which side of the ramp examples are when they enter, and how many of them stay."""

from typing import Any

import dask.config
import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.engine import learner
from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.messages import CandidateBatch
from dasksvm.solver.unbiased.learner import BandExpansion
from pipelines.tasks import Task

# Number of examples that are classified at once. Their side is that at the beginning of the block, not when each is processed.
BATCH = 16
RAMP = -1.0


def regions(model: Any, task: Task) -> dict[str, int]:
    """Fit a GapSVC, and count the examples on each side of the ramp.

    Parameters
    ----------
    model : GapSVC
    task : Task

    Returns
    -------
    dict of str to int
        Support vectors and other members at the end; `left` and `right`, examples that were met with y f(x) < -1 and > 1, and
        `left_cleaned` and `right_cleaned`, those of them that are no members at the end.
    """
    met: NDArray[np.float64] = np.full(len(task.y), np.nan)
    original = BandExpansion.violations_and_state

    def watched(
        self: BandExpansion, result: CandidateBatch, at: Ints, found: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        met[result.examples[at]] = (result.sign[:, at] * found)[0]
        return original(self, result, at, found)

    sizes = learner.LEAST_BATCH, learner.LARGEST_BATCH
    BandExpansion.violations_and_state, learner.LEAST_BATCH, learner.LARGEST_BATCH = watched, BATCH, BATCH  # type: ignore[method-assign]
    try:
        with dask.config.set({"dasksvm.filter": False}):
            model.fit(task.X, task.y)
    finally:
        BandExpansion.violations_and_state = original  # type: ignore[method-assign]
        learner.LEAST_BATCH, learner.LARGEST_BATCH = sizes
    members = np.zeros(len(task.y), np.bool_)
    members[model._running[0].expansion.examples()] = True
    left, right = met < RAMP, met > 1.0
    return {
        "support_vectors": int(model.n_support_.sum()),
        "others": int(members.sum() - model.n_support_.sum()),
        "left": int(left.sum()),
        "right": int(right.sum()),
        "left_cleaned": int((left & ~members).sum()),
        "right_cleaned": int((right & ~members).sum()),
    }
