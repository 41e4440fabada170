"""Predictions for data sets, block by block: on the current cluster, or on the threads of this process."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm.data import Dataset
from dasksvm.model import KernelModel
from dasksvm.solver.features import Ints

# Chunks that are computed together: what they give is in memory at once.
TOGETHER = 16


def blocks(model: KernelModel, data: Dataset) -> Iterator[tuple[Ints, NDArray[Any], NDArray[np.float64]]]:
    """Yield the rows in the source, the labels and the decision values, of shape (m, P), of each chunk, in order.

    Parameters
    ----------
    model : KernelModel
    data : Dataset
    """
    from dask.base import compute

    lazy = model.decision_function(data.as_dask()[0])
    start, parts = 0, lazy.numblocks[0]
    for at in range(0, parts, TOGETHER):
        for values in compute(*(lazy.blocks[part] for part in range(at, min(at + TOGETHER, parts)))):
            rows = data.source_rows(np.arange(start, start + len(values)))
            yield rows, model.classes[model.codes(values)], values
            start += len(values)


def confusion(model: KernelModel, data: Dataset) -> NDArray[np.int64]:
    """Count the rows of each class that are predicted as each class, shape (c, c).

    Parameters
    ----------
    model : KernelModel
    data : Dataset
        With no labels but those that the model knows.
    """
    from dask.base import compute
    from dask.delayed import delayed

    strange = data.needs_labels().classes[~np.isin(data.classes, model.classes)]
    if len(strange):
        raise ValueError(f"{data.path} has the labels {strange.tolist()}, which the model does not know.")
    X, y = data.as_dask()
    pairs = zip(y.to_delayed(), model.predict(X).to_delayed(), strict=True)
    counts: NDArray[np.int64] = sum(compute(*(delayed(_count)(model.classes, *pair) for pair in pairs)))
    return counts


def _count(classes: NDArray[Any], true: NDArray[Any], predicted: NDArray[Any]) -> NDArray[np.int64]:
    count = len(classes)
    of, guess = np.searchsorted(classes, true), np.searchsorted(classes, predicted)
    return np.bincount(of * count + guess, minlength=count * count).reshape(count, count)
