"""The driver of a run on a cluster: it places the coordinator, advances it turn by turn, and replaces it if it is lost."""

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any
from uuid import uuid4

from distributed import Client, Security
from distributed.client import ClosedClientError
from distributed.comm import connect

from dasksvm.data.sources import Examples
from dasksvm.runtime.cluster import SchedulerLost, SchedulerSilent, WorkersLost, local_cluster
from dasksvm.runtime.coordinator_client import Arriving, CoordinatorLost, Line, Silent
from dasksvm.runtime.placement import place
from dasksvm.runtime.protocol import Begun, Report, Turn
from dasksvm.runtime.run_hooks import attendant
from dasksvm.runtime.worker_health import TileWorkers
from dasksvm.solver.engine import learner_state
from dasksvm.solver.engine.learner import Learner
from dasksvm.training.callbacks import Watcher
from dasksvm.training.local_executor import Looks
from dasksvm.training.snapshots import Checkpoint, Memo
from dasksvm.training.timings import Timings

logger = logging.getLogger("dasksvm")
TICK = 0.25
CLOSE_TIMEOUT = 5.0
RESTART_TIMEOUT = 10.0
# Number of coordinators that may be lost in a row without any new result.
COORDINATORS = 8
# Errors that mean that the scheduler was not reached. distributed raises TypeError for tls:// without certificates.
NOT_REACHED = (OSError, RuntimeError, TypeError)


@contextmanager
def connected(client: Any) -> Iterator[Client | None]:
    """Yield the client to use: the given one, a new one for an address, the current one if None is given, or None."""
    if isinstance(client, str):
        with _reached(client, set_as_default=False) as made:
            yield made
    elif client is not None:
        yield client
    else:
        try:
            yield Client.current()
        except ValueError:
            yield None


@contextmanager
def opened(
    workers: int, scheduler: str | None, scheduler_file: str | None, timeout: float | None = None
) -> Iterator[Client | None]:
    """Open a client for the command line: of a running cluster, or of new workers on this machine; or yield None.

    Parameters
    ----------
    workers : int
        Number of compute workers to start if no scheduler is given; with 0 there is no cluster.
    scheduler, scheduler_file : str, optional
        Address of the scheduler of a running cluster, or a file that contains it.
    timeout : float, optional
        Seconds to wait for that scheduler; `distributed.comm.timeouts.connect` if not given.
    """
    if scheduler is not None or scheduler_file is not None:
        options: dict[str, Any] = {"scheduler_file": scheduler_file}
        if timeout is not None:
            _knock(scheduler or _address_in(str(scheduler_file)), timeout)
            options["timeout"] = timeout
        with _reached(scheduler, **options) as client:
            yield client
    elif workers:
        with local_cluster(workers) as cluster, _Client(cluster, direct_to_workers=True) as client:
            yield client
    else:
        yield None


class _Client(Client):  # type: ignore[misc]
    """A client that cleans up completely if its scheduler cannot be reached.

    A plain `Client` then keeps its event loop running, and the garbage collector may close it much later. If that happens while
    the same thread starts or stops the loop of another client, it deadlocks on a lock that the thread itself holds.
    """

    def start(self, **options: Any) -> None:
        """Connect to the scheduler."""
        try:
            super().start(**options)
        except BaseException:
            self.close()  # does nothing if Dask has closed the client, which leaves its loop running
            if self._loop_runner.is_started():
                self._loop_runner.stop()
            raise


def _reached(address: str | None, **options: Any) -> Client:
    try:
        return _Client(address, direct_to_workers=True, **options)
    except NOT_REACHED as error:
        raise ConnectionError(f"could not reach the scheduler: {error}") from error


def _knock(address: str, timeout: float) -> None:
    """Raise ConnectionError if no scheduler answers in time; a client would wait for a frozen scheduler for ever."""

    async def shake_hands() -> None:
        comm = await connect(address, timeout=timeout, **Security().get_connection_args("client"))
        comm.abort()

    try:
        asyncio.run(asyncio.wait_for(shake_hands(), timeout))
    except TimeoutError as error:
        raise ConnectionError(
            f"could not reach the scheduler: {address} did not answer within {timeout:g} s."
        ) from error
    except NOT_REACHED as error:
        raise ConnectionError(f"could not reach the scheduler: {error}") from error


def _address_in(scheduler_file: str) -> str:
    try:
        return str(json.loads(Path(scheduler_file).read_text())["address"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{scheduler_file} does not contain the address of a scheduler.") from error


def run(
    client: Client,
    learner: Learner,
    examples: Examples,
    watch: Watcher,
    looks: Looks,
    checkpoint: Checkpoint | None = None,
) -> tuple[Learner, Timings]:
    """Run a learner on a cluster; the learner has been fed.

    Parameters
    ----------
    client : Client
    learner : Learner
    examples : Examples
    watch, looks : callable, and Looks
        See `LocalExecutor.run`.
    checkpoint : Checkpoint, optional
        Where snapshots are written, and from where the run resumes: at its start, and when its coordinator is lost.

    Returns
    -------
    learner : Learner
        The learner at the end of the run, without kernel rows.
    timings : Timings
    """
    audience = _Audience(watch, looks, learner.applied)
    name, address = uuid4().hex[:8], client.scheduler.address
    before = learner_state.state(learner)
    lost_in_a_row, reported = 0, audience.reported
    avoid: set[str] = set()
    for attempt in count():
        try:
            fresh = learner if attempt == 0 else learner_state.restore(learner.settings, before)
            ended, timings = _attempt(client, f"{name}-{attempt}", fresh, examples, audience, checkpoint, avoid)
            return ended, replace(timings, seconds=audience.seconds())
        except WorkersLost as lost:
            raise WorkersLost(f"{lost} {_resumption(checkpoint)}") from lost
        except SchedulerSilent as lost:
            raise SchedulerSilent(f"{lost} {_resumption(checkpoint)}") from lost
        except (SchedulerLost, ClosedClientError) as lost:
            raise _without(address, checkpoint) from lost
        except CoordinatorLost as lost:
            lost_in_a_row = 1 if audience.reported > reported else lost_in_a_row + 1
            reported = audience.reported
            if client.status != "running":
                raise _without(address, checkpoint) from lost
            if lost_in_a_row == COORDINATORS:
                raise
            attendant.get().note(f"run {name} lost its coordinator and starts another one: {lost}")
            if isinstance(lost, Silent):
                avoid |= _restarted(client, lost.address) if lost.started else {lost.address}
            if checkpoint is not None and audience.begun:
                checkpoint = replace(checkpoint, resume=True)
    raise AssertionError


def _without(address: str, checkpoint: Checkpoint | None) -> SchedulerLost:
    return SchedulerLost(f"the connection to the scheduler {address} is lost. {_resumption(checkpoint)}")


def _resumption(checkpoint: Checkpoint | None) -> str:
    """Tell the user how to resume a run that ends with an error of the cluster."""
    if checkpoint is None:
        return (
            "The run wrote no snapshots (checkpoint=, --checkpoint), so it has to be started again from the beginning."
        )
    return (
        f"The run can be resumed from {checkpoint.folder}, on this cluster or another: use the same checkpoint with "
        "resume=True (--resume)."
    )


class _Audience:
    """Reports each step to the watcher once: a coordinator that replaces a lost one repeats its steps."""

    def __init__(self, watch: Watcher, looks: Looks, applied: int) -> None:
        self._watch = watch
        self._looks = looks
        self._start = perf_counter()
        self.reported = self._at = applied
        self._shown = 0
        self._judged: list[bool] = []
        self.begun = False
        # Number of results after which the learner was asked to stop: a replacement coordinator stops there too.
        self.stop: int | None = None

    @property
    def every(self) -> tuple[int, ...]:
        return self._looks.every

    def seconds(self) -> float:
        return perf_counter() - self._start

    def memo(self) -> Memo | None:
        """Return the memo for a snapshot; None while a new coordinator repeats steps that have been reported already."""
        if self._at < self.reported or self._shown < len(self._judged):
            return None
        return Memo(self._looks.entries, self._shown, self.seconds())

    def begin(self, begun: Begun) -> None:
        self._at, self._shown = begun.applied, 0 if begun.memo is None else begun.memo.shown
        if not self.begun and begun.memo is not None:
            self._looks.resume(begun.memo.entries)
            self._start -= begun.memo.seconds
            self.reported, self._judged = begun.applied, [False] * self._shown
        self.begun = True

    def tell(self, report: Report) -> None:
        stop = False
        for progress in report.entries:
            self._at += 1
            if self._at > self.reported:
                self.reported = self._at
                stop |= self._watch(progress, self.seconds())
        if report.finished is not None:
            if self._shown == len(self._judged):
                before = perf_counter()
                self._judged.append(self._looks.look(report.finished, self.seconds()))
                self._start += perf_counter() - before
            self._start += report.finishing
            stop |= self._judged[self._shown]
            self._shown += 1
        if stop and self.stop is None:
            self.stop = self._at


def _attempt(
    client: Client,
    name: str,
    learner: Learner,
    examples: Examples,
    audience: _Audience,
    checkpoint: Checkpoint | None,
    avoid: set[str],
) -> tuple[Learner, Timings]:
    """Run a learner under one coordinator."""
    attending = attendant.get()
    future, address = place(client, name, learner, examples, copies=bool(audience.every), avoid=avoid)
    line = Line(client, future, address)
    tile_workers = TileWorkers(client, name, address)
    try:
        line.coordinator = line.answer(lambda: Arriving(client, future))
        begun: Begun = line.ask("begin", learner, examples, audience.every, checkpoint)
        if begun.error is not None:
            raise begun.error
        for text in begun.warnings:
            attending.warn(text)
        audience.begin(begun)
        keep = False
        for number in count():
            attending.heed(begun=True)
            memo = audience.memo() if keep and checkpoint is not None else None
            turn = Turn(number, TICK, audience.seconds(), audience.stop, memo)
            report: Report = line.ask("advance", turn)
            audience.tell(report)
            keep = report.due or (audience.stop is not None and not report.stopped)
            if report.warning is not None:
                attending.warn(report.warning)
            if report.error is not None:
                raise report.error
            if report.done:
                return line.ask("conclude"), report.timings
            tile_workers.watch(report.waiting)
        raise AssertionError
    except CoordinatorLost:
        line.coordinator = None  # a call to close it would only time out
        raise
    finally:
        if line.coordinator is not None:
            with suppress(Exception):
                line.coordinator.close().result(timeout=CLOSE_TIMEOUT)
        # Cancel, because the proxy is part of a reference cycle: its release would wait for the garbage collector.
        with suppress(ClosedClientError):
            client.cancel(future, force=True)


def _restarted(client: Client, address: str) -> set[str]:
    """Restart a worker that is stuck; return it as one to avoid if that fails."""
    try:
        client.restart_workers([address], timeout=RESTART_TIMEOUT)
    except Exception as error:  # whatever the reason, there may be other workers
        logger.warning("the worker %s could not be restarted: %s", address, error)
        return {address}
    return set()
