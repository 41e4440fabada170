"""The driver of a run on a cluster: it places the coordinator, advances it turn by turn, and replaces it if it is lost."""

import logging
from contextlib import suppress
from dataclasses import replace
from itertools import count
from time import perf_counter
from uuid import uuid4

from distributed import Client
from distributed.client import ClosedClientError

from dasksvm.data.sources import Examples
from dasksvm.runtime.cluster import SchedulerLost, SchedulerSilent, WorkersLost
from dasksvm.runtime.coordinator_client import CoordinatorClient, CoordinatorLost, CoordinatorSilent
from dasksvm.runtime.placement import start_coordinator
from dasksvm.runtime.protocol import Report, StartReport, Turn
from dasksvm.runtime.run_hooks import current_hooks
from dasksvm.runtime.worker_health import TileWorkers
from dasksvm.solver.engine import learner_state
from dasksvm.solver.engine.learner import Learner
from dasksvm.training.callbacks import Watcher
from dasksvm.training.local_executor import Evaluation
from dasksvm.training.snapshots import Checkpoint, Memo
from dasksvm.training.timings import Timings

logger = logging.getLogger("dasksvm")
TICK = 0.25
CLOSE_TIMEOUT = 5.0
RESTART_TIMEOUT = 10.0
# Number of coordinators that may be lost in a row without any new result.
COORDINATORS = 8


def run(
    client: Client,
    learner: Learner,
    examples: Examples,
    watch: Watcher,
    evaluation: Evaluation,
    checkpoint: Checkpoint | None = None,
) -> tuple[Learner, Timings]:
    """Run a learner on a cluster; the learner has been fed.

    Parameters
    ----------
    client : Client
    learner : Learner
    examples : Examples
    watch, evaluation : callable, and Evaluation
        See `LocalExecutor.run`.
    checkpoint : Checkpoint, optional
        Where snapshots are written, and from where the run resumes: at its start, and when its coordinator is lost.

    Returns
    -------
    learner : Learner
        The learner at the end of the run, without kernel rows.
    timings : Timings
    """
    reporter = _StepReporter(watch, evaluation, learner.applied)
    name, address = uuid4().hex[:8], client.scheduler.address
    before = learner_state.state(learner)
    lost_in_a_row, reported = 0, reporter.reported
    avoid: set[str] = set()
    for attempt in count():
        try:
            fresh = learner if attempt == 0 else learner_state.restore(learner.settings, before)
            ended, timings = _attempt(client, f"{name}-{attempt}", fresh, examples, reporter, checkpoint, avoid)
            return ended, replace(timings, seconds=reporter.seconds())
        except WorkersLost as lost:
            raise WorkersLost(f"{lost} {_how_to_resume(checkpoint)}") from lost
        except SchedulerSilent as lost:
            raise SchedulerSilent(f"{lost} {_how_to_resume(checkpoint)}") from lost
        except (SchedulerLost, ClosedClientError) as lost:
            raise _scheduler_lost(address, checkpoint) from lost
        except CoordinatorLost as lost:
            lost_in_a_row = 1 if reporter.reported > reported else lost_in_a_row + 1
            reported = reporter.reported
            if client.status != "running":
                raise _scheduler_lost(address, checkpoint) from lost
            if lost_in_a_row == COORDINATORS:
                raise
            current_hooks.get().note(f"run {name} lost its coordinator and starts another one: {lost}")
            if isinstance(lost, CoordinatorSilent):
                avoid |= _restart_worker(client, lost.address) if lost.started else {lost.address}
            if checkpoint is not None and reporter.begun:
                checkpoint = replace(checkpoint, resume=True)
    raise AssertionError


def _scheduler_lost(address: str, checkpoint: Checkpoint | None) -> SchedulerLost:
    return SchedulerLost(f"the connection to the scheduler {address} is lost. {_how_to_resume(checkpoint)}")


def _how_to_resume(checkpoint: Checkpoint | None) -> str:
    """Tell the user how to resume a run that ends with an error of the cluster."""
    if checkpoint is None:
        return (
            "The run wrote no snapshots (checkpoint=, --checkpoint), so it has to be started again from the beginning."
        )
    return (
        f"The run can be resumed from {checkpoint.folder}, on this cluster or another: use the same checkpoint with "
        "resume=True (--resume)."
    )


class _StepReporter:
    """Reports each step to the watcher once: a coordinator that replaces a lost one repeats its steps."""

    def __init__(self, watch: Watcher, evaluation: Evaluation, applied: int) -> None:
        self._watch = watch
        self._evaluation = evaluation
        self._start = perf_counter()
        self.reported = self._at = applied
        self._evaluated = 0
        self._verdicts: list[bool] = []
        self.begun = False
        # Number of results after which the learner was asked to stop: a replacement coordinator stops there too.
        self.stop: int | None = None

    @property
    def every(self) -> tuple[int, ...]:
        return self._evaluation.every

    def seconds(self) -> float:
        return perf_counter() - self._start

    def memo(self) -> Memo | None:
        """Return the memo for a snapshot; None while a new coordinator repeats steps that have been reported already."""
        if self._at < self.reported or self._evaluated < len(self._verdicts):
            return None
        return Memo(self._evaluation.entries, self._evaluated, self.seconds())

    def begin(self, begun: StartReport) -> None:
        self._at, self._evaluated = begun.applied, 0 if begun.memo is None else begun.memo.evaluated
        if not self.begun and begun.memo is not None:
            self._evaluation.resume(begun.memo.entries)
            self._start -= begun.memo.seconds
            self.reported, self._verdicts = begun.applied, [False] * self._evaluated
        self.begun = True

    def report_turn(self, report: Report) -> None:
        stop = False
        for progress in report.entries:
            self._at += 1
            if self._at > self.reported:
                self.reported = self._at
                stop |= self._watch(progress, self.seconds())
        if report.finished is not None:
            if self._evaluated == len(self._verdicts):
                before = perf_counter()
                self._verdicts.append(self._evaluation.evaluate(report.finished, self.seconds()))
                self._start += perf_counter() - before
            self._start += report.finishing
            stop |= self._verdicts[self._evaluated]
            self._evaluated += 1
        if stop and self.stop is None:
            self.stop = self._at


def _attempt(
    client: Client,
    name: str,
    learner: Learner,
    examples: Examples,
    reporter: _StepReporter,
    checkpoint: Checkpoint | None,
    avoid: set[str],
) -> tuple[Learner, Timings]:
    """Run a learner under one coordinator."""
    hooks = current_hooks.get()
    future, address = start_coordinator(client, name, learner, examples, copies=bool(reporter.every), avoid=avoid)
    coordinator = CoordinatorClient(client, future, address)
    try:
        coordinator.connect()
        begun: StartReport = coordinator.call("begin", learner, examples, reporter.every, checkpoint)
        if begun.error is not None:
            raise begun.error
        for text in begun.warnings:
            hooks.warn(text)
        reporter.begin(begun)
        tile_workers = TileWorkers(client, name, address)
        write_snapshot = False
        for number in count():
            hooks.raise_if_cancelled(begun=True)
            memo = reporter.memo() if write_snapshot and checkpoint is not None else None
            turn = Turn(number, TICK, reporter.seconds(), reporter.stop, memo)
            report: Report = coordinator.call("advance", turn)
            reporter.report_turn(report)
            write_snapshot = report.due or (reporter.stop is not None and not report.stopped)
            if report.warning is not None:
                hooks.warn(report.warning)
            if report.error is not None:
                raise report.error
            if report.done:
                return coordinator.call("conclude"), report.timings
            tile_workers.watch(report.waiting)
        raise AssertionError
    except CoordinatorLost:
        coordinator.proxy = None  # a call to close it would only time out
        raise
    finally:
        if coordinator.proxy is not None:
            with suppress(Exception):
                coordinator.proxy.close().result(timeout=CLOSE_TIMEOUT)
        # Cancel, because the proxy is part of a reference cycle: its release would wait for the garbage collector.
        with suppress(ClosedClientError):
            client.cancel(future, force=True)


def _restart_worker(client: Client, address: str) -> set[str]:
    """Restart a worker that is stuck; return it as one to avoid if that fails."""
    try:
        client.restart_workers([address], timeout=RESTART_TIMEOUT)
    except Exception as error:  # whatever the reason, there may be other workers
        logger.warning("the worker %s could not be restarted: %s", address, error)
        return {address}
    return set()
