"""The actor that owns the learner: it asks the workers for tiles, takes the results in sequence, and reports.

Its synchronous methods run one at a time on the worker's actor thread; the async ones answer on the event loop meanwhile, from
what is published and never written again. A task that called a synchronous method while `advance` waits for it would
wait for ever.
"""

import sys
from collections import deque
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any
from weakref import finalize

from distributed import get_worker

from dasksvm.config.blas import one_thread
from dasksvm.data.sources import DaskSource, Examples
from dasksvm.runtime.member_cache import RUNNING
from dasksvm.runtime.memory_limits import nearly_full
from dasksvm.runtime.protocol import Begun, Introduction, Options, Order, Orders, Post, Report, Turn
from dasksvm.runtime.task_queue import Dispatch
from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.preview import Finished, copying, is_due
from dasksvm.solver.engine.tiles import Map, member_rows
from dasksvm.solver.kernels.features import Features
from dasksvm.solver.memory import Workspace
from dasksvm.solver.messages import Plan, Progress, RowsPlan, ScorePlan
from dasksvm.training.local_executor import beside, with_helper
from dasksvm.training.snapshots import Checkpoint, Memo, Snapshots
from dasksvm.training.timings import Timings

# Multiply-adds of a tile that take about 25 ms: a task should not be smaller, or its own cost shows.
TASK_WORK = 3e9
# What comes in one message leaves memory together: much of it should not wait for the rest.
TASK_BYTES = 32 << 20
# What a kernel value costs beside its products.
VALUE_WORK = 30
PROFILED = (
    "the workers run Dask's statistical profiler, which on Python 3.11 can end a worker that runs compiled code: start them with "
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED=false."
)


class Coordinator:
    """A thin shell around a learner; lives as an actor on one worker of the cluster.

    Parameters
    ----------
    run : str
    options : Options
    """

    def __init__(self, run: str, options: Options) -> None:
        self.options = options
        self.post = Post(run, get_worker().address, f"dasksvm-coordinator-{run}")
        self.timings = Timings()
        self._published: dict[int, Plan] = {}
        self._unsent: list[ScorePlan] = []
        self._queue: deque[Plan] = deque()
        self._seconds = 0.0
        self._progress: Progress | None = None
        self._workspace = Workspace()
        self._each: Map = map
        self._closed = False
        # The copy that is being finished, and whether one has been shown of which nothing was said yet.
        self._copying: Generator[None, None, Finished] | None = None
        self._copying_seconds = 0.0
        self._shown = False
        self._begun: Begun | None = None
        self._reported: tuple[int, Report] | None = None
        self._snapshots: Snapshots | None = None

    # Called by the driver, one at a time

    def begin(
        self, learner: Learner, examples: Examples, every: tuple[int, ...], checkpoint: Checkpoint | None
    ) -> Begun:
        """Take over a learner that has been fed, wherever it stands, or go on from the newest snapshot.

        A finished copy is shown whenever a multiple of one of `every` examples was seen.
        """
        if self._begun is not None:
            return self._begun
        memo: Memo | None = None
        texts: list[str] = []
        if checkpoint is not None:
            self._snapshots = Snapshots(checkpoint)
            try:
                learner, memo, texts = self._snapshots.begin(learner)
            except Exception as error:  # raised by the driver
                return Begun(0, None, [], error)
        self.learner, self.examples, self.every = learner, examples, every
        try:
            self._dispatch = Dispatch(self.post, self.options, self.timings, examples.source)
            # A driver that is lost cannot close it, and a task for a worker that is gone as well would be waited for.
            finalize(self, self._dispatch.close).atexit = False
            self._wanted([*learner.pending(), *learner.plans()])
        except Exception as error:
            _blame_closing(error)
            raise
        if sys.version_info[:2] == (3, 11) and "profile" in get_worker().periodic_callbacks:
            texts = [*texts, PROFILED]
        self._begun = Begun(learner.applied, memo, texts, None)
        return self._begun

    def advance(self, turn: Turn) -> Report:
        """Go on for a while; errors come in the report, so that a lost worker can be told from them."""
        if self._reported is None or self._reported[0] != turn.number:
            self._reported = turn.number, self._advance(turn)
        return self._reported[1]

    def _advance(self, turn: Turn) -> Report:
        start = perf_counter()
        entries: list[Progress] = []
        error: Exception | None = None
        warning: str | None = None
        finished: Finished | None = None
        cores = get_worker().state.nthreads
        with one_thread(), ThreadPoolExecutor(1, "dasksvm-helper") if cores > 1 else nullcontext() as helper:
            try:
                if helper is not None:
                    self.learner.share_work(partial(with_helper, helper))
                self._each = map if helper is None else partial(beside, helper)
                warning = self._keep(turn.memo)
                self._stop_at(turn.stop)
                if self._shown:
                    self._shown = False
                    self._ask()
                deadline = perf_counter() + turn.seconds
                while not self._closed and finished is None and perf_counter() < deadline:
                    self._stop_at(turn.stop)
                    if self._copying is not None:
                        finished = self._copy_on()
                    elif self._queue:
                        progress = self._step(deadline)
                        if progress is not None:
                            entries.append(progress)
                    else:
                        break
            except Exception as raised:  # reported to the driver, which raises it
                _blame_closing(raised)
                # Nothing more is wanted, and there may be no driver that says so. Its frames would keep this object.
                self._dispatch.close()
                error = raised.with_traceback(None)
            finally:
                self.learner.share_work(map)
        taken = perf_counter() - start
        self._seconds += taken
        self._shown |= finished is not None
        done = not self._queue and self._copying is None and not self._shown
        if done:
            entries.append(self.learner.progress())
        return Report(
            entries,
            done,
            waiting=not done and not entries and not self._shown and self._copying is None,
            error=error,
            warning=warning or (None if done else self._watch_memory()),
            timings=replace(self.timings, seconds=self._seconds),
            finished=finished,
            finishing=self._copying_seconds,
            due=not done and self._may_keep(turn.clock + taken),
            stopped=self.learner.stopped,
        )

    def _stop_at(self, applied: int | None) -> None:
        """Stop the learner if it has taken so many results, but not while a copy of it is finished."""
        late = applied is not None and self.learner.applied >= applied
        if late and self._copying is None and not self.learner.stopped:
            self.learner.stop()

    def _may_keep(self, clock: float) -> bool:
        """Tell whether it is time for a snapshot, and the state one to go on from: no copy waits for what is said of it."""
        return (
            self._snapshots is not None
            and self._copying is None
            and not self._shown
            and self._snapshots.due(self.learner, clock)
        )

    def _keep(self, memo: Memo | None) -> str | None:
        """Write a snapshot, with what the driver wants to have back with it; say what the user should know."""
        if memo is None or self._snapshots is None or self._copying is not None or self.learner.stopped:
            return None
        before = perf_counter()
        text = self._snapshots.write(self.learner, memo)
        self.timings.keeping += perf_counter() - before
        return text

    def _watch_memory(self) -> str | None:
        """End the run before the worker's limit does."""
        used = nearly_full(get_worker())
        if used is None or self.learner.stopped:
            return None
        self.learner.stop()
        members = self.learner.progress().members
        return (
            f"the coordinator's worker uses {used} with {members} members: the run ends with the examples it has seen."
        )

    def conclude(self) -> Learner:
        """Give the learner back, without its kernel rows."""
        self.learner.expansion.release_rows()
        return self.learner

    def _step(self, deadline: float) -> Progress | None:
        """Apply the next result, if it comes in time."""
        first, seen = self._queue[0], self.learner.seen
        if isinstance(first, RowsPlan):
            before = perf_counter()
            progress = self.learner.take(member_rows(first, self.learner.settings.kernel, self._workspace, self._each))
        else:
            if self._unsent and self._unsent[0] is first:
                self._send(everything=True)
            batch = self._dispatch.wait(first.sequence, deadline)
            before = perf_counter()
            if batch is None:
                return None
            progress = self.learner.take(batch)
        self._queue.popleft()
        del self._published[first.sequence]
        self.timings.taking += perf_counter() - before
        if is_due(self.every, seen, progress.seen):
            self._copying, self._copying_seconds = copying(self.learner, lambda *given: self._each(*given)), 0.0
        else:
            self._ask()
        self._progress = progress
        return progress

    def _ask(self) -> None:
        before = perf_counter()
        new = self.learner.plans()
        self.timings.taking += perf_counter() - before
        self._wanted(new)

    def _copy_on(self) -> Finished | None:
        """Go on with the copy that is shown next: the learner waits for it, and for what is said of it."""
        assert self._copying is not None
        before = perf_counter()
        try:
            next(self._copying)
        except StopIteration as end:
            self._copying = None
            copied: Finished = end.value
            return copied
        finally:
            self._copying_seconds += perf_counter() - before
        return None

    def _wanted(self, plans: list[Plan]) -> None:
        """Publish new plans and send those that fill a task; the last ones of a pass are sent as they are."""
        for plan in plans:
            self._published[plan.sequence] = plan
            self._queue.append(plan)
            if isinstance(plan, ScorePlan):
                self._unsent.append(plan)
        self._send(everything=not plans)

    def _send(self, everything: bool) -> None:
        """Send the plans that wait, in groups; with `everything`, also those that do not fill one."""
        while self._unsent:
            count = next(
                (n for n in range(1, len(self._unsent)) if self._fills_a_task(self._unsent[:n])), len(self._unsent)
            )
            group = self._unsent[:count]
            if not everything and not self._fills_a_task(group):
                return
            del self._unsent[:count]
            rows = [plan.rows - self.examples.base for plan in group]
            self._dispatch.send(tuple(plan.sequence for plan in group), rows, _bytes(group) >= TASK_BYTES)

    def _fills_a_task(self, group: list[ScorePlan]) -> bool:
        """As many plans as leave every worker two tasks, more while tiles are small, fewer when their rows are many bytes."""
        values = [len(plan.rows) * len(plan.view.order) for plan in group]
        members = group[0].view.members
        width = 0 if members is None else members.width
        if _bytes(group) >= TASK_BYTES:
            return True
        lookahead = self.learner.settings.lookahead
        if len(group) < max(lookahead // (2 * self._dispatch.slots()), 1):
            return False
        return sum(values) * (width + VALUE_WORK) >= TASK_WORK or len(group) >= lookahead // 2

    # Called by workers and by anyone who wants to know, at any time

    async def introduction(self) -> Introduction:
        """Tell a worker what it needs before its first tile."""
        examples = self.examples
        reads = not isinstance(examples.source, DaskSource)
        return Introduction(
            kernel=self.learner.settings.kernel,
            form=examples.form,
            chunks=examples.source.chunks,
            base=examples.base,
            coding=examples.coding,
            source=examples.source if reads else None,
            columns=examples.columns if reads else None,
        )

    async def orders(self, sequences: tuple[int, ...], held: dict[int, int]) -> Orders | None:
        """Give the plans of a task with the members that the worker lacks; None when a plan is done with."""
        plans = [self._published.get(sequence) for sequence in sequences]
        orders: list[Order] = []
        stores: dict[int, Features] = {}
        for plan in plans:
            if not isinstance(plan, ScorePlan) or self._closed:
                return None
            members, generation = plan.view.members, plan.view.generation
            if members is not None and len(members) >= len(stores.get(generation, ())):
                stores[generation] = members
            targets = self.examples.targets(plan.rows) if isinstance(self.examples.source, DaskSource) else None
            slots = 0 if members is None else len(members)
            orders.append(
                Order(plan.sequence, plan.rows, replace(plan.view, members=None), slots, targets, plan.choice)
            )
        missing = {
            generation: members.part(held.get(generation, 0), len(members))
            for generation, members in stores.items()
            if len(members) > held.get(generation, 0) or generation not in held
        }
        return Orders(orders, missing)

    async def status(self) -> dict[str, Any]:
        """Tell where the run stands."""
        progress = {} if self._progress is None else self._progress.as_dict()
        return {"run": self.post.run, "queued": len(self._queue), "closed": self._closed, **progress}

    async def close(self) -> None:
        """Ask for nothing more; what is on its way is forgotten."""
        self._closed = True
        if hasattr(self, "_dispatch"):
            self._dispatch.close()


def _blame_closing(error: Exception) -> None:
    """Raise what a driver takes for a lost coordinator, where the worker closes: its client does first, and then all fails."""
    if get_worker().status not in RUNNING:
        raise RuntimeError(f"its worker closes: {error}") from error


def _bytes(group: list[ScorePlan]) -> int:
    """Bytes of the kernel rows of some plans."""
    members = group[0].view.members
    size = 4 if members is None else members.dtype.itemsize
    return size * sum(plan.wanted * len(plan.view.order) for plan in group)
