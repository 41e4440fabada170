"""Training as a job that outlives its client."""

import logging
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklearn.base import clone

from dasksvm.data.dataset import Dataset
from dasksvm.data.paths import is_url, located
from dasksvm.estimators._fitting import UNLIMITED, LearnedClassifier
from dasksvm.estimators.parameters import check_parameters
from dasksvm.estimators.training import check_checkpoint, train

if TYPE_CHECKING:
    from dasksvm.runtime.jobs.driver import Driver
    from dasksvm.runtime.jobs.job import Job

logger = logging.getLogger("dasksvm")


def submit(
    data: Dataset | str | Path,
    estimator: LearnedClassifier,
    client: Any = None,
    checkpoint: str | Path | None = None,
    every: float | None = None,
    resume: bool = False,
    name: str | None = None,
) -> "Job":
    """Train an estimator on a data set as a job: it goes on when this process ends.

    A driver whose worker is lost begins again on another one: with a checkpoint from the newest snapshot, else from the start.

    Parameters
    ----------
    data : Dataset or its path
        Which the workers must see there.
    estimator : estimator of this package
        Left as it is.
    client : distributed.Client or str, optional
        Of the cluster, or its scheduler's address; the estimator's or the current one if not given.
    checkpoint : str or Path, optional
        Folder for snapshots, as for `train`, on storage that the workers share. The finished model is written there too, as
        `<id>.model`.
    every : float, optional
    resume : bool, default=False
        As for `train`.
    name : str, optional
        The id begins with it: letters, digits, - and _.

    Returns
    -------
    Job
    """
    if not isinstance(data, Dataset | str | Path):
        raise TypeError(
            f"a job needs a Dataset or its path, for the workers to open; Dataset.create writes one. Got {type(data).__name__}."
        )
    check_checkpoint(checkpoint, every, resume)
    check_parameters(estimator, estimator._parameter_rules)
    from dasksvm.runtime import launch

    path = _absolute(data.path if isinstance(data, Dataset) else data)
    folder = None if checkpoint is None else _absolute(checkpoint)
    bare = clone(estimator).set_params(client=None, verbose=0)
    about = {
        "data": path,
        "solver": type(estimator).__name__,
        "parameters": {
            key: _told(value) for key, value in bare.get_params().items() if key not in ("client", "verbose")
        },
        "checkpoint": folder,
    }
    work = partial(_train, path, bare, folder, every, resume)
    return launch(estimator.client if client is None else client, work, about, name)


def _train(
    path: str, estimator: LearnedClassifier, folder: str | None, every: float | None, resume: bool, driver: "Driver"
) -> tuple[bytes, bool]:
    """Train in a job's driver: give the bytes of the model's file, and whether a budget ended the run."""
    kept = None if folder is None else Path(folder, f"{driver.id}.model")
    if driver.outcome is not None and kept is not None and kept.is_file():
        return kept.read_bytes(), driver.outcome == "stopped"
    data = Dataset.open(path).needs_labels()
    passes = max(estimator._passes(), 1) if hasattr(estimator, "epochs") else 1
    driver.describe(examples=min(passes * len(data), getattr(estimator, "max_examples", None) or UNLIMITED))
    again = folder is not None and (resume or driver.again)
    run = train(data, estimator, driver.client, folder, every, again, [driver])
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "model")
        run.model.save(file)
        content = file.read_bytes()
    if kept is not None:
        try:
            run.model.save(kept)
        except OSError as error:
            logger.warning("the model of the job %s is not in its folder too: %s", driver.id, error)
    return content, run.stopped


def _absolute(path: str | Path) -> str:
    text = located(path)
    return text if is_url(text) else str(Path(text).absolute())


def _told(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
