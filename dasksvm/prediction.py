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
    """Yield the rows in the source, the labels and the decision values of each chunk, in order.

    Parameters
    ----------
    model : KernelModel
        Of two classes.
    data : Dataset
    """
    from dask.base import compute

    lazy = model.decision_function(data.as_dask()[0])[:, 0]
    start = 0
    for at in range(0, lazy.npartitions, TOGETHER):
        for values in compute(*(lazy.blocks[part] for part in range(at, min(at + TOGETHER, lazy.npartitions)))):
            rows = data.source_rows(np.arange(start, start + len(values)))
            yield rows, model.classes[(values > 0).astype(np.intp)], values
            start += len(values)


def confusion(model: KernelModel, data: Dataset) -> NDArray[np.int64]:
    """Count the rows of each class that are predicted as each class, shape (2, 2).

    Parameters
    ----------
    model : KernelModel
    data : Dataset
        With no labels but those that the model knows.
    """
    from dask.base import compute

    strange = data.needs_labels().classes[~np.isin(data.classes, model.classes)]
    if len(strange):
        raise ValueError(f"{data.path} has the labels {strange.tolist()}, which the model does not know.")
    X, y = data.as_dask()
    predicted = model.predict(X)
    counts = [[((y == true) & (predicted == guess)).sum() for guess in model.classes] for true in model.classes]
    return np.array(compute(counts)[0], np.int64)
