"""The driver of a detached job: a task that drives a run as a client would, and reports on the scheduler.

The scheduler holds everything that is known about a job: its record in the metadata, the events of its topic, and its future,
which a variable keeps alive. If the worker of a driver is lost, Dask starts the driver again on another one.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from distributed import Client, get_client, get_worker, secede

from dasksvm.runtime.cluster import ask_scheduler
from dasksvm.runtime.run_hooks import RunHooks, current_hooks
from dasksvm.solver.messages import Progress

logger = logging.getLogger("dasksvm")
RECORDS = "dasksvm-jobs"
# Seconds between checks whether the job was cancelled, and between progress events. A long run sends events less often, so that
# the thousand events that the scheduler keeps per topic cover more of it.
CHECK_INTERVAL, LONGEST_INTERVAL = 0.5, 5.0
# Seconds to wait for the scheduler where the job can continue without its answer.
ANSWER_TIMEOUT = 30.0
Event = dict[str, Any]
# Returns the bytes of a model file, and whether the run was stopped early.
Work = Callable[["Driver"], tuple[bytes, bool]]


class JobCancelled(RuntimeError):
    """The job was cancelled."""


def name_of(id: str) -> str:
    """Return the name of a job's topic, which is also the name of its future and of the variable that keeps the future."""
    return f"dasksvm-job-{id}"


def drive(id: str, work: Work) -> bytes:
    """Run a job: the function of its task. Returns the model as the bytes of its file."""
    secede()
    driver = Driver(get_client(), id)
    try:
        with driver.as_hooks():
            content, stopped = work(driver)
    except Exception as error:
        how = "cancelled" if isinstance(error, JobCancelled) else "failed"
        driver.end(how)
        raise
    driver.end("stopped" if stopped else "done")
    return content


class Driver(RunHooks):
    """One execution of the task of a job; the watcher and the hooks of its run.

    Parameters
    ----------
    client : Client
    id : str

    Attributes
    ----------
    begun_before : bool
        Whether a run of this job has begun before. If so, the snapshots in its checkpoint are its own.
    outcome : str or None
        How an earlier execution ended, if there was one: "failed", "cancelled", or "done" or "stopped" if its result was lost
        with its worker.
    """

    def __init__(self, client: Client, id: str) -> None:
        self.client, self.id = client, id
        events = [event for _, event in ask_scheduler(client, "events", topic=name_of(id))]
        self.begun_before = bool(self._record().get("begun"))
        self.outcome = next((event["how"] for event in reversed(events) if event["kind"] == "ended"), None)
        self._most_steps = max((event["steps"] for event in events if event["kind"] == "progress"), default=0)
        self._number = events[-1]["number"] if events else 0
        self._begun = False
        self._losses_reset = not events
        self._next_check = 0.0
        self._newest: tuple[Progress, float] | None = None
        self._last_sent: tuple[float, float, int] | None = None
        self.log("started", worker=get_worker().address)

    def describe(self, **facts: Any) -> None:
        """Add facts to the record of the job, unless the record was deleted."""
        self._raise_if_cancelled()
        for name, value in facts.items():
            ask_scheduler(self.client, "set_metadata", keys=[RECORDS, self.id, "about", name], value=value)

    def log(self, kind: str, **facts: Any) -> None:
        """Add an event, and return when the scheduler has it."""
        self._number += 1
        event = {"kind": kind, "number": self._number, **facts}
        ask_scheduler(self.client, "log_event", topic=name_of(self.id), msg=event)

    @contextmanager
    def as_hooks(self) -> Iterator[None]:
        """Be the hooks of the runs of this thread."""
        token = current_hooks.set(self)
        try:
            yield
        finally:
            current_hooks.reset(token)

    def raise_if_cancelled(self, begun: bool) -> None:
        """End the run if the job was cancelled; once the run has begun, record that before there can be a snapshot."""
        now = monotonic()
        if now >= self._next_check:
            self._next_check = now + CHECK_INTERVAL
            self._raise_if_cancelled()
        if begun and not self._begun:
            self._begun = True
            ask_scheduler(self.client, "set_metadata", keys=[RECORDS, self.id, "begun"], value=True)

    def note(self, text: str) -> None:
        """Log a warning, also as an event for clients that attach."""
        logger.warning(text)
        self.log("warning", text=text)

    warn = note

    def __call__(self, progress: Progress, seconds: float) -> bool:
        """Send the progress as an event, unless one was sent a moment ago."""
        self._newest = progress, seconds
        if self._last_sent is None or monotonic() - self._last_sent[0] >= max(
            CHECK_INTERVAL, min(seconds / 100, LONGEST_INTERVAL)
        ):
            self._send_progress()
        if not self._losses_reset and progress.steps > self._most_steps:
            self._losses_reset = True
            self._reset_losses()
        return False

    def end(self, how: str) -> None:
        """Send the last progress and how the job ended."""
        if self._newest is not None:
            self._send_progress()
        self.log("ended", how=how)

    def _send_progress(self) -> None:
        assert self._newest is not None
        progress, seconds = self._newest
        _, before, seen = self._last_sent or (0.0, seconds, 0)
        rate = (progress.seen - seen) / (seconds - before) if seconds > before else 0.0
        self.log("progress", **_plain(progress), rows_per_second=rate, seconds=seconds)
        self._newest, self._last_sent = None, (monotonic(), seconds, progress.seen)

    def _raise_if_cancelled(self) -> None:
        if self._record().get("cancelled", False):
            raise JobCancelled(f"the job {self.id} was cancelled.")

    def _record(self) -> dict[str, Any]:
        """Read the record of the job; a deleted one counts as cancelled."""
        keys = [RECORDS, self.id]
        found: dict[str, Any] | None = ask_scheduler(self.client, "get_metadata", keys=keys, default=None)
        return {"cancelled": True} if found is None else found

    def _reset_losses(self) -> None:
        """Reset the number of workers that this task has lost: it got further than ever before, so it did not kill them.

        Otherwise Dask gives up a task that has lost more than `allowed-failures` workers, however long it has run.
        """
        key = name_of(self.id)

        # Defined here so that it is pickled by value: the scheduler may not have this package.
        def forgive(dask_scheduler: Any) -> None:
            if key in dask_scheduler.tasks:
                dask_scheduler.tasks[key].suspicious = 0

        try:
            self.client.run_on_scheduler(forgive, callback_timeout=ANSWER_TIMEOUT)
        except Exception as error:  # the scheduler may forbid it
            logger.warning("the job %s will fail if it loses several more workers: %s", self.id, error)


def _plain(progress: Progress) -> dict[str, Any]:
    """Return a progress as plain numbers; for several problems, the largest violation and the sum of the dual objectives."""
    return {
        "phase": progress.phase,
        "epoch": int(progress.epoch),
        "seen": int(progress.seen),
        "members": int(progress.members),
        "steps": int(progress.steps),
        "measure": progress.measure,
        progress.measure: float(progress.delta.max()),
        "dual": float(progress.dual.sum()),
        "evaluations": int(progress.evaluations),
    }
