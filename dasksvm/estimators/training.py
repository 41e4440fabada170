"""Training as a call: what came out, and where the time went."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone

from dasksvm.callbacks import Watcher
from dasksvm.estimators.learned import LearnedClassifier
from dasksvm.model import KernelModel
from dasksvm.timings import Timings


@dataclass(frozen=True)
class Run:
    """What a training leaves.

    Attributes
    ----------
    model : KernelModel
    estimator : estimator
        Fitted.
    history : list of dict
        As `history_` of the estimator.
    timings : Timings
        Where the time went.
    """

    model: KernelModel
    estimator: LearnedClassifier
    history: list[dict[str, Any]]
    timings: Timings


def train(data: Any, estimator: LearnedClassifier, client: Any = None, callbacks: Sequence[Watcher] = ()) -> Run:
    """Train an estimator on a data set.

    Parameters
    ----------
    data : Dataset, its path, or a pair (X, y)
    estimator : estimator of this package
        Left as it is: a clone is fitted.
    client : distributed.Client or str, optional
        As the estimator's parameter; the estimator's own if not given.
    callbacks : sequence of callables
        Called with the progress and the seconds since the start after every batch; one that returns True ends the run early.

    Returns
    -------
    Run
    """
    fitted = clone(estimator).set_params(client=estimator.client if client is None else client)
    X, y = data if isinstance(data, tuple) else (data, None)
    timings = fitted._fit(X, y, None, callbacks)
    return Run(fitted.model_, fitted, fitted.history_, timings)
