"""The function `submit`, which trains as a job that continues after its client has gone."""

import logging
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklearn.base import clone

from dasksvm.data.dataset import Dataset
from dasksvm.data.paths import is_url, located
from dasksvm.estimators._fitting import LearnedClassifier, limit
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
    """Train an estimator on a data set as a job, which continues after this process has ended.

    If the worker that runs the job is lost, another one starts it again: from the newest snapshot if there is a checkpoint,
    otherwise from the beginning.

    Parameters
    ----------
    data : Dataset or its path
        The workers must be able to open it under this path.
    estimator : estimator of this package
        It is not changed.
    client : distributed.Client or str, optional
        Client of the cluster, or the address of its scheduler. If not given, the estimator's client or the current one.
    checkpoint : str or Path, optional
        Folder for snapshots, as for `train`, on storage that the workers share. The finished model is also written there, as
        `<id>.model`.
    every : float, optional
    resume : bool, default=False
        As for `train`.
    name : str, optional
        First part of the job's id: letters, digits, - and _.

    Returns
    -------
    Job
    """
    if not isinstance(data, Dataset | str | Path):
        raise TypeError(
            "a job needs a Dataset or its path, which the workers can open; Dataset.create writes one. "
            f"Got {type(data).__name__} instead."
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
            key: _as_json_value(value) for key, value in bare.get_params().items() if key not in ("client", "verbose")
        },
        "checkpoint": folder,
    }
    work = partial(_train, path, bare, folder, every, resume)
    return launch(estimator.client if client is None else client, work, about, name)


def _train(
    path: str, estimator: LearnedClassifier, folder: str | None, every: float | None, resume: bool, driver: "Driver"
) -> tuple[bytes, bool]:
    """Train in a job's driver; return the content of the model file and whether a budget ended the run."""
    kept = None if folder is None else Path(folder, f"{driver.id}.model")
    if driver.outcome is not None and kept is not None and kept.is_file():
        return kept.read_bytes(), driver.outcome == "stopped"
    data = Dataset.open(path).needs_labels()
    examples = estimator._most_passes(len(data)) * len(data)
    driver.describe(examples=min(examples, limit(getattr(estimator, "max_examples", None))))
    again = folder is not None and (resume or driver.begun_before)
    run = train(data, estimator, driver.client, folder, every, again, [driver])
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "model")
        run.model.save(file)
        content = file.read_bytes()
    if kept is not None:
        try:
            run.model.save(kept)
        except OSError as error:
            logger.warning(
                "the model of the job %s could not be written to its checkpoint folder: %s", driver.id, error
            )
    return content, run.stopped


def _absolute(path: str | Path) -> str:
    text = located(path)
    return text if is_url(text) else str(Path(text).absolute())


def _as_json_value(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
