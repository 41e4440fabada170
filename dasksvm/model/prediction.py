"""Predictions for data sets, block by block, on the current cluster or with the threads of this process."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.data.dataset import Dataset
from dasksvm.model.kernel_model import KernelModel
from dasksvm.solver.kernels.features import Ints

# Smallest number of chunks that are computed together; their predictions are in memory at the same time.
CHUNKS_AT_ONCE = 16
# Function that is called with the name of the phase, the number of rows so far, and their share of all rows.
Watch = Callable[[str, int, float], None]


def chunks_at_once(threads: int) -> int:
    """Return how many chunks are computed together on a cluster with this many threads, or without one (0)."""
    return max(CHUNKS_AT_ONCE, 2 * threads)


class Predicted(NamedTuple):
    """Predictions for m rows: row numbers in the source and class numbers, shape (m,), and decision values, shape (m, P)."""

    rows: Ints
    codes: Ints
    values: NDArray[np.float64]


def blocks(model: KernelModel, data: Dataset, together: int = CHUNKS_AT_ONCE) -> Iterator[Predicted]:
    """Yield the predictions for all chunks in order, several chunks at a time.

    Parameters
    ----------
    model : KernelModel
    data : Dataset
    together : int, default=16
        Number of chunks at a time.
    """
    from dask.base import compute

    parts = model.decision_function(data).to_delayed()[:, 0]
    start = 0
    for at in range(0, len(parts), together):
        values = np.concatenate(compute(*parts[at : at + together]))
        yield Predicted(data.source_rows(np.arange(start, start + len(values))), model.codes(values), values)
        start += len(values)


class Comparison(NamedTuple):
    """Predictions compared with labels: how many rows of each class were predicted as each class, shape (c, c).

    With two classes, `positive` says whether each row belongs to the second class, and `decision` is its decision value, both of
    shape (n,); with more classes they are empty.
    """

    confusion: NDArray[np.int64]
    positive: NDArray[np.bool_]
    decision: NDArray[np.float64]


def compare_with_labels(
    model: KernelModel, data: Dataset, *, threads: int = 0, watch: Watch | None = None
) -> Comparison:
    """Compare the predictions for a data set with its labels, chunk by chunk.

    Parameters
    ----------
    model : KernelModel
    data : Dataset
        Its labels must be classes of the model.
    threads : int, default=0
        Number of threads of the cluster that computes; 0 if this process computes.
    watch : callable, optional
        See `Watch`.
    """
    from dask.base import compute
    from dask.delayed import delayed

    unknown = data.needs_labels().classes[~np.isin(data.classes, model.classes)]
    if len(unknown):
        raise ValueError(f"{data.path} has the labels {unknown.tolist()}, which the model does not know.")
    pairs = zip(data.as_dask()[1].to_delayed(), model.decision_function(data).to_delayed()[:, 0], strict=True)
    shared = delayed(model, pure=True)
    tasks = [delayed(_compare_block)(shared, *pair) for pair in pairs]
    found: list[Comparison] = []
    together = chunks_at_once(threads)
    for at in range(0, len(tasks), together):
        found += compute(*tasks[at : at + together])
        if watch is not None:
            done = min(len(found) * data.chunk_rows, len(data))
            watch("evaluating", done, done / len(data))
    return Comparison(
        np.sum([part.confusion for part in found], axis=0),
        np.concatenate([part.positive for part in found]),
        np.concatenate([part.decision for part in found]),
    )


def _compare_block(model: KernelModel, true: NDArray[Any], values: NDArray[np.float64]) -> Comparison:
    count = len(model.classes)
    of = np.searchsorted(model.classes, true)
    table = np.bincount(of * count + model.codes(values), minlength=count * count).reshape(count, count)
    two = slice(None) if count == 2 else slice(0)
    return Comparison(table, (of == 1)[two], values[:, 0][two])
