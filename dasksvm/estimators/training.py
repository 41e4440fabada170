"""The function `train`, which returns the model, the fitted estimator and the timings of a run."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

from sklearn.base import clone

from dasksvm import config
from dasksvm.data.array_types import ColumnLike, RowsLike
from dasksvm.data.dataset import Dataset
from dasksvm.data.paths import local
from dasksvm.data.sources import DatasetSource, Examples
from dasksvm.estimators._fitting import LearnedClassifier
from dasksvm.model.kernel_model import KernelModel
from dasksvm.solver.engine.settings import Settings
from dasksvm.training.callbacks import Watcher
from dasksvm.training.snapshots import Checkpoint, Pace, defined_by
from dasksvm.training.timings import Timings


@dataclass(frozen=True)
class Run:
    """The result of a training.

    Attributes
    ----------
    model : KernelModel
    estimator : estimator
        The fitted estimator.
    history : list of dict
        The estimator's `history_`.
    timings : Timings
        The time spent in each part of the run.
    stopped : bool
        Whether a budget or a callback ended the run early.
    """

    model: KernelModel
    estimator: LearnedClassifier
    history: list[dict[str, Any]]
    timings: Timings
    stopped: bool


def train(
    data: Dataset | str | Path | tuple[RowsLike, ColumnLike],
    estimator: LearnedClassifier,
    client: Any = None,
    checkpoint: str | Path | None = None,
    every: float | None = None,
    resume: bool = False,
    callbacks: Sequence[Watcher] = (),
) -> Run:
    """Train an estimator on a data set.

    Parameters
    ----------
    data : Dataset, its path, or a pair (X, y)
    estimator : estimator of this package
        It is not changed: a clone is fitted.
    client : distributed.Client or str, optional
        Replaces the estimator's parameter `client`.
    checkpoint : str or Path, optional
        Folder for snapshots of the run, of which the newest three are kept. On a cluster it must be on storage that the workers
        share. If the coordinator is lost, the run continues from the newest snapshot.
    every : float, optional
        Seconds between snapshots. If not given, `dasksvm.snapshot-every`, or more if snapshots would take over 2 % of the time
        (`dasksvm.snapshot-share`), but at most `dasksvm.snapshot-wait`.
    resume : bool, default=False
        Whether to continue from the newest snapshot in the folder, if there is one, on any number of workers. The model is the
        same as that of a run without interruption. A run that was ended by `max_time` or a callback continues where it
        ended. If False, the folder must not contain snapshots.
    callbacks : sequence of callables
        Each is called after every batch with the progress and the seconds since the start; it can return True to end the run
        early.

    Returns
    -------
    Run
    """
    check_checkpoint(checkpoint, every, resume)
    fitted = clone(estimator).set_params(client=estimator.client if client is None else client)
    X, y = data if isinstance(data, tuple) else (data, None)
    make_checkpoint = (
        None if checkpoint is None else partial(_checkpoint_of, str(local(checkpoint).absolute()), every, resume)
    )
    timings, stopped = fitted._fit(X, y, None, callbacks, make_checkpoint=make_checkpoint)
    return Run(fitted.model_, fitted, fitted.history_, timings, stopped)


def check_checkpoint(checkpoint: str | Path | None, every: float | None, resume: bool) -> None:
    """Raise ValueError if these options for snapshots do not go together."""
    if checkpoint is None and (resume or every is not None):
        raise ValueError("resume and every need a checkpoint, the folder of the snapshots.")
    if checkpoint is not None:
        local(checkpoint)


def _checkpoint_of(
    folder: str, every: float | None, resume: bool, settings: Settings, examples: Examples, seeded: bool
) -> Checkpoint:
    run = defined_by(settings, examples)
    if isinstance(examples.source, DatasetSource) and examples.source.data.names is not None:
        # Columns in another order are different data.
        run["feature_names"] = f"{crc32(json.dumps(examples.source.data.names).encode()):08x}"
    return Checkpoint(folder, _pace(every), resume, run, seeded)


def _pace(every: float | None) -> Pace:
    """Return how often snapshots are written, as given by the user or else by the configuration."""
    if every is not None:
        return Pace(float(every))
    share = float(config.get("snapshot-share"))
    return Pace(config.seconds_of("snapshot-every"), share, config.seconds_of("snapshot-wait"))
