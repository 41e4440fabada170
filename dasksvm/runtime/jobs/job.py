"""Jobs that outlive their client: put on a cluster, looked at from anywhere, cancelled, fetched."""

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
from dasksvm.runtime.cluster import COORDINATOR, ask_scheduler, workers_of
from dasksvm.runtime.driver import connected
from dasksvm.runtime.jobs.driver import RECORDS, Event, JobCancelled, Work, drive, name_of
from dasksvm.runtime.placement import offering
from dasksvm.solver.messages import Progress
from dasksvm.training.callbacks import ProgressLines, Watcher

logger = logging.getLogger("dasksvm")
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
POLL = 0.5
ANSWER = 30.0
OVER = ("done", "stopped", "failed", "cancelled", "lost")


class UnknownJob(ValueError):
    """The cluster has no such job."""


class JobLost(RuntimeError):
    """Dask has given the job up."""


@dataclass(frozen=True)
class JobStatus:
    """Where a job stands.

    Attributes
    ----------
    id : str
    state : {"queued", "running", "done", "stopped", "failed", "cancelled", "lost"}
        Stopped: by a budget, with a model. Lost: Dask has given it up, or its scheduler is gone.
    about : dict
        What it is: `data`, `solver`, `parameters`, `checkpoint`, `submitted`, and `examples`, those of its passes.
    progress : dict or None
        The last event of its progress.
    error : str or None
        Why it has no model.
    warnings : list of str
        What its user should know: coordinators that were lost, snapshots that could not be written.
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
    """A training that runs on a cluster by itself; see `submit`.

    Parameters
    ----------
    id : str
    client : distributed.Client or str, optional
        Of its cluster, or its scheduler's address; the current client if not given.
    """

    def __init__(self, id: str, client: Any = None) -> None:
        if not ID.fullmatch(id):
            raise UnknownJob(f"{id!r} is no id of a job.")
        self.id = id
        self.client = client

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def status(self) -> JobStatus:
        """Tell where the job stands.

        Raises
        ------
        UnknownJob
            If there is none: it was forgotten, or was another scheduler's.
        """
        with _client(self.client) as client:
            return self._look(client)[0]

    def attach(self, callbacks: Sequence[Watcher] | None = None) -> JobStatus:
        """Follow the job until it is over: first what was, as far back as the scheduler knows, then what comes.

        Parameters
        ----------
        callbacks : sequence of callables, optional
            Called with the progress and the seconds since the start; one that returns True detaches. A line on standard error
            if not given. Of several problems the progress has the largest δ and the sum of the dual objectives.

        Returns
        -------
        JobStatus
            At the end.
        """
        watchers: Sequence[Watcher] | None = callbacks
        told = 0
        with _client(self.client) as client:
            status, events = self._look(client)
            lines = None
            try:
                while True:
                    if watchers is None and "examples" in status.about:
                        lines = ProgressLines(status.about["examples"])
                        watchers = [lines]
                    new = [event for event in events if event["number"] > told and watchers is not None]
                    for event in new:
                        told = event["number"]
                        if event["kind"] == "warning" and lines is not None:
                            lines.note(event["text"])
                        if event["kind"] == "progress" and _tell(watchers or (), event):
                            return status
                    if status.over:
                        return status
                    sleep(POLL)
                    try:
                        status, events = self._look(client)
                    except OSError as error:
                        return replace(status, state="lost", error=f"the scheduler does not answer: {error}")
            finally:
                if lines is not None:
                    lines.close()

    def cancel(self) -> None:
        """End the job, without a model, within a second or two; forget it, if it is over.

        Snapshots stay: a job with `resume=True` goes on from them.
        """
        with _client(self.client) as client:
            over = self._look(client)[0].over
            if over:
                client.set_metadata([RECORDS, self.id], None)
                _forget_events(client, name_of(self.id))
            else:
                client.set_metadata([RECORDS, self.id, "cancelled"], True)
            Variable(name_of(self.id), client).delete()
            # The submitting client's release waits for its garbage collector.
            client.cancel(Future(name_of(self.id), client), force=True)

    def fetch(self) -> KernelModel:
        """Give the model, when the job is done; the cluster keeps it too.

        Raises
        ------
        JobCancelled, JobLost
            If there will be none; if the job failed, its error.
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

    def _look(self, client: Client) -> tuple[JobStatus, list[Event]]:
        """Tell where the job stands, and its events, which are complete if it is over."""
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
            state, error = "lost", "its scheduler does not know its task any more."
        warnings = [event["text"] for event in events if event["kind"] == "warning"]
        return JobStatus(self.id, state, record["about"], progress, error, warnings), events


def jobs(client: Any = None) -> list[Job]:
    """List the jobs that a cluster knows, in the order of their submission.

    Parameters
    ----------
    client : distributed.Client or str, optional
        As for `Job`.
    """
    with _client(client) as found:
        records: dict[str, Any] = ask_scheduler(found, "get_metadata", keys=[RECORDS], default={})
    return [Job(id, client) for id, record in records.items() if record is not None]


def check_name(name: str) -> None:
    """Raise ValueError where the id of a job cannot begin so."""
    if not NAME.fullmatch(name):
        raise ValueError(f"name must be made of up to 40 letters, digits, - and _. Got {name!r} instead.")


def launch(client: Any, work: Work, about: dict[str, Any], name: str | None) -> Job:
    """Put a job on a cluster; its driver goes where coordinators go, if there is such a worker."""
    if name is not None:
        check_name(name)
    id = token_hex(4) if name is None else f"{name}-{token_hex(3)}"
    with _client(client) as found:
        submitted = datetime.now(UTC).isoformat(timespec="seconds")
        preferred = offering(workers_of(found), COORDINATOR)
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
    with connected(client) as found:
        if found is None:
            raise ValueError("jobs need a cluster: give a client, or its scheduler's address.")
        yield found


def _future(client: Client, key: str) -> Future:
    """Give the future of a job that is kept; a published data set would bring back all that this client has released lately."""
    return Variable(key, client).get(timeout=ANSWER)


def _forget_events(client: Client, topic: str) -> None:
    """Let the scheduler forget the events of a topic, which it would else keep as long as it lives."""

    # Defined here, it goes by value: a scheduler need not have this package.
    def forget(dask_scheduler: Any) -> None:
        dask_scheduler._broker.truncate(topic)

    try:
        client.run_on_scheduler(forget)
    except Exception as error:  # the scheduler may forbid it
        logger.warning("the scheduler keeps the events of %s: %s", topic, error)


def _failure(client: Client, key: str) -> tuple[str, str]:
    error = _future(client, key).exception()
    if isinstance(error, KilledWorker):
        return (
            "lost",
            "too many of the workers that ran its driver were lost. With resume=True another job goes on from its snapshots.",
        )
    return "failed", f"{type(error).__name__}: {error}"


def _tell(watchers: Sequence[Watcher], event: Event) -> bool:
    """Tell the watchers of an event; return whether one has seen enough."""
    progress = Progress(
        **{name: event[name] for name in ("phase", "epoch", "seen", "members", "steps", "evaluations", "measure")},
        delta=np.array([event[event["measure"]]]),
        dual=np.array([event["dual"]]),
    )
    answers = [watcher(progress, event["seconds"]) for watcher in watchers]
    return any(answers)
