"""Training as a call: what came out, and where the time went."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

from sklearn.base import clone

from dasksvm import config
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
    stopped : bool
        Whether a budget or a callback ended the run before it was done.
    """

    model: KernelModel
    estimator: LearnedClassifier
    history: list[dict[str, Any]]
    timings: Timings
    stopped: bool


def train(
    data: Any,
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
        Left as it is: a clone is fitted.
    client : distributed.Client or str, optional
        As the estimator's parameter; the estimator's own if not given.
    checkpoint : str or Path, optional
        Folder for snapshots of the run, the newest three; on a cluster on storage that its workers share. A coordinator that
        is lost goes on from there.
    every : float, optional
        Seconds from one snapshot to the next, whatever share of the time they take. If not given, `dasksvm.snapshot-every`, or
        more where they would take over 2 % of the time (`dasksvm.snapshot-share`), but at most `dasksvm.snapshot-wait`.
    resume : bool, default=False
        Whether to go on from the newest snapshot in the folder, on whatever number of workers, if there is one: the model is
        that of a run that was never interrupted. A run that `max_time` or a callback ended goes on from there. If False, there
        must be none.
    callbacks : sequence of callables
        Called with the progress and the seconds since the start after every batch; one that returns True ends the run early.

    Returns
    -------
    Run
    """
    check_checkpoint(checkpoint, every, resume)
    fitted = clone(estimator).set_params(client=estimator.client if client is None else client)
    X, y = data if isinstance(data, tuple) else (data, None)
    keeping = None if checkpoint is None else partial(_kept, str(local(checkpoint).absolute()), every, resume)
    timings, stopped = fitted._fit(X, y, None, callbacks, keeping=keeping)
    return Run(fitted.model_, fitted, fitted.history_, timings, stopped)


def check_checkpoint(checkpoint: str | Path | None, every: float | None, resume: bool) -> None:
    """Raise ValueError where these cannot say how a run is kept."""
    if checkpoint is None and (resume or every is not None):
        raise ValueError("resume and every need a checkpoint, the folder of the snapshots.")
    if checkpoint is not None:
        local(checkpoint)


def _kept(
    folder: str, every: float | None, resume: bool, settings: Settings, examples: Examples, seeded: bool
) -> Checkpoint:
    run = defined_by(settings, examples)
    if isinstance(examples.source, DatasetSource) and examples.source.data.names is not None:
        # Columns that stand in another order are other data.
        run["feature_names"] = f"{crc32(json.dumps(examples.source.data.names).encode()):08x}"
    return Checkpoint(folder, _pace(every), resume, run, seeded)


def _pace(every: float | None) -> Pace:
    """How often snapshots are written: as the user says, or as the configuration does."""
    if every is not None:
        return Pace(float(every))
    share = float(config.get("snapshot-share"))
    return Pace(config.seconds_of("snapshot-every"), share, config.seconds_of("snapshot-wait"))
