"""Jobs: trainings on a cluster that continue without their client and can be watched, cancelled and fetched from anywhere."""

import logging
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from time import sleep
from typing import Any

import numpy as np
from distributed import Client, Future, KilledWorker, Variable

from dasksvm.model.kernel_model import KernelModel
from dasksvm.model.native import load
from dasksvm.runtime.client import use_client
from dasksvm.runtime.cluster import COORDINATOR, ask_scheduler, workers_of
from dasksvm.runtime.jobs.driver import RECORDS, Event, JobCancelled, Work, drive, name_of
from dasksvm.runtime.placement import workers_with
from dasksvm.solver.messages import Progress
from dasksvm.training.callbacks import ProgressLines, Watcher

logger = logging.getLogger("dasksvm")
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
POLL = 0.5
ANSWER_TIMEOUT = 30.0
OVER = ("done", "stopped", "failed", "cancelled", "lost")


class UnknownJob(ValueError):
    """The cluster has no such job."""


class JobLost(RuntimeError):
    """The cluster has given the job up, or does not know it any more."""


@dataclass(frozen=True)
class JobStatus:
    """The status of a job.

    Attributes
    ----------
    id : str
    state : {"queued", "running", "done", "stopped", "failed", "cancelled", "lost"}
        "stopped" means that a limit, such as `max_time`, ended the job early; it has a model. "lost" means that Dask has given
        the job up, or that its scheduler does not answer.
    about : dict
        Describes the job: `data`, `solver`, `parameters`, `checkpoint`, `submitted`, and `examples`, the number of examples in
        all its passes.
    progress : dict or None
        The most recent progress event.
    error : str or None
        Why there is no model.
    warnings : list of str
        Warnings of the run, for example lost coordinators or snapshots that could not be written.
    """

    id: str
    state: str
    about: dict[str, Any]
    progress: Event | None
    error: str | None
    warnings: list[str]

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self.state in OVER


class Job:
    """A training that runs on a cluster independently of its client; see `submit`.

    Parameters
    ----------
    id : str
        Id of the job.
    client : distributed.Client or str, optional
        A client of the cluster, or the address of its scheduler. The current client if not given.
    """

    def __init__(self, id: str, client: Any = None) -> None:
        if not ID.fullmatch(id):
            raise UnknownJob(f"{id!r} is not a valid job id.")
        self.id = id
        self.client = client

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def status(self) -> JobStatus:
        """Return the status of the job.

        Raises
        ------
        UnknownJob
            If the cluster has no such job: it was deleted, or belongs to another scheduler.
        """
        with _client(self.client) as client:
            return self._read_status(client)[0]

    def attach(self, callbacks: Sequence[Watcher] | None = None) -> JobStatus:
        """Follow the job until it ends, beginning with the earlier events that the scheduler still has.

        Parameters
        ----------
        callbacks : sequence of callables, optional
            Called with the progress and the seconds since the start; if one returns True, stop following. If not given, the
            progress is shown on standard error. For several problems the progress has the largest violation and the sum of the
            dual objectives.

        Returns
        -------
        JobStatus
            The status at the end.
        """
        watchers: Sequence[Watcher] | None = callbacks
        last = 0
        with _client(self.client) as client:
            status, events = self._read_status(client)
            lines = None
            try:
                while True:
                    if watchers is None and "examples" in status.about:
                        lines = ProgressLines(status.about["examples"])
                        watchers = [lines]
                    new = [event for event in events if event["number"] > last and watchers is not None]
                    for event in new:
                        last = event["number"]
                        if event["kind"] == "warning" and lines is not None:
                            lines.note(event["text"])
                        if event["kind"] == "progress" and _pass_on(watchers or (), event):
                            return status
                    if status.over:
                        return status
                    sleep(POLL)
                    try:
                        status, events = self._read_status(client)
                    except OSError as error:
                        return replace(status, state="lost", error=f"the scheduler does not answer: {error}")
            finally:
                if lines is not None:
                    lines.close()

    def cancel(self) -> None:
        """End the job without a model, within a second or two; if it has ended already, delete it from the cluster.

        Snapshots are kept, and another job can continue from them with `resume=True`.
        """
        with _client(self.client) as client:
            over = self._read_status(client)[0].over
            if over:
                client.set_metadata([RECORDS, self.id], None)
                _delete_events(client, name_of(self.id))
            else:
                client.set_metadata([RECORDS, self.id, "cancelled"], True)
            Variable(name_of(self.id), client).delete()
            # The client that submitted the job only releases the future when its garbage collector runs.
            client.cancel(Future(name_of(self.id), client), force=True)

    def fetch(self) -> KernelModel:
        """Wait until the job is done and return its model, which the cluster keeps too.

        Raises
        ------
        JobCancelled, JobLost
            If there will be no model. If the job failed, its error is raised.
        """
        status = self.attach(())
        if status.state == "cancelled":
            raise JobCancelled(f"the job {self.id} was cancelled.")
        if status.state == "lost":
            raise JobLost(f"the job {self.id} was lost: {status.error}")
        with _client(self.client) as client:
            content = _future(client, name_of(self.id)).result()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model")
            path.write_bytes(content)
            return load(path)

    def _read_status(self, client: Client) -> tuple[JobStatus, list[Event]]:
        """Return the status of the job and its events, which are complete if it is over."""
        record = ask_scheduler(client, "get_metadata", keys=[RECORDS, self.id], default=None)
        if record is None:
            raise UnknownJob(f"the cluster has no job {self.id}.")
        key = name_of(self.id)
        at = ask_scheduler(client, "get_task_status", keys=[key])[key]
        events = [event for _, event in ask_scheduler(client, "events", topic=key)]
        progress = next((event for event in reversed(events) if event["kind"] == "progress"), None)
        state, error = "running" if events else "queued", None
        if record.get("cancelled"):
            state = "cancelled"
        elif at == "memory":
            state = next(event["how"] for event in reversed(events) if event["kind"] == "ended")
        elif at == "erred":
            state, error = _failure(client, key)
        elif at is None:
            state, error = "lost", "the scheduler no longer knows its task."
        warnings = [event["text"] for event in events if event["kind"] == "warning"]
        return JobStatus(self.id, state, record["about"], progress, error, warnings), events


def jobs(client: Any = None) -> list[Job]:
    """List the jobs on a cluster, in the order of their submission.

    Parameters
    ----------
    client : distributed.Client or str, optional
        A client of the cluster, or the address of its scheduler. The current client if not given.
    """
    with _client(client) as found:
        records: dict[str, Any] = ask_scheduler(found, "get_metadata", keys=[RECORDS], default={})
    return [Job(id, client) for id, record in records.items() if record is not None]


def check_name(name: str) -> None:
    """Raise ValueError if the id of a job cannot begin with this name."""
    if not NAME.fullmatch(name):
        raise ValueError(
            "name must begin with a letter or digit and have at most 40 letters, digits, - and _. "
            f"Got {name!r} instead."
        )


def launch(client: Any, work: Work, about: dict[str, Any], name: str | None) -> Job:
    """Submit a job to a cluster; its driver runs on a worker for coordinators if there is one."""
    if name is not None:
        check_name(name)
    id = token_hex(4) if name is None else f"{name}-{token_hex(3)}"
    with _client(client) as found:
        submitted = datetime.now(UTC).isoformat(timespec="seconds")
        preferred = workers_with(workers_of(found), COORDINATOR)
        found.set_metadata([RECORDS, id], {"about": {**about, "submitted": submitted}})
        future = found.submit(
            drive,
            id,
            work,
            key=name_of(id),
            workers=preferred or None,
            allow_other_workers=bool(preferred),
            priority=1,
        )
        Variable(name_of(id), found).set(future)
    return Job(id, client)


@contextmanager
def _client(client: Any) -> Iterator[Client]:
    with use_client(client) as found:
        if found is None:
            raise ValueError("jobs need a cluster: pass a client or the address of a scheduler.")
        yield found


def _future(client: Client, key: str) -> Future:
    """Return the future of a job.

    It is kept by a variable and not as a published data set, because publishing would bring back everything that this client
    has released recently.
    """
    return Variable(key, client).get(timeout=ANSWER_TIMEOUT)


def _delete_events(client: Client, topic: str) -> None:
    """Delete the events of a topic, which the scheduler would otherwise keep as long as it runs."""

    # Defined here so that it is pickled by value: the scheduler may not have this package.
    def forget(dask_scheduler: Any) -> None:
        dask_scheduler._broker.truncate(topic)

    try:
        client.run_on_scheduler(forget)
    except Exception as error:  # the scheduler may forbid it
        logger.warning("the events of %s could not be deleted from the scheduler: %s", topic, error)


def _failure(client: Client, key: str) -> tuple[str, str]:
    error = _future(client, key).exception()
    if isinstance(error, KilledWorker):
        return (
            "lost",
            "too many of the workers that ran its driver were lost. Another job can continue from its snapshots with "
            "resume=True.",
        )
    return "failed", f"{type(error).__name__}: {error}"


def _pass_on(watchers: Sequence[Watcher], event: Event) -> bool:
    """Pass an event to the watchers; return whether one of them returned True."""
    progress = Progress(
        **{name: event[name] for name in ("phase", "epoch", "seen", "members", "steps", "evaluations", "measure")},
        delta=np.array([event[event["measure"]]]),
        dual=np.array([event["dual"]]),
    )
    answers = [watcher(progress, event["seconds"]) for watcher in watchers]
    return any(answers)
