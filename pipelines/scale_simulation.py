"""A run in blocks on a cluster, simulated: a coordinator and workers that do the steps of a trace at measured costs."""

import heapq
import itertools
from collections import deque
from collections.abc import Generator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from dasksvm import config
from dasksvm.runtime.coordinator import TASK_BYTES, TASK_SECONDS
from dasksvm.runtime.shared_sums import PARTS, PRIORITY
from dasksvm.solver.blocks.pieces import PIECE_ROWS
from dasksvm.solver.kernels.features import DenseFeatures
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.state.expansion import SQUARE_PART
from pipelines.scale_costs import Costs
from pipelines.scale_events import Clock, Cores, Event, Process, Turns
from pipelines.scale_trace import Shift, Step, Trace

# Bytes of a feature, and of a coefficient or a slot in a message.
FEATURE, NUMBER = 4, 8
# Parts of the coordinator's time in which it computes.
COMPUTING = ("bookkeeping", "updating", "storing", "squaring", "solving", "shifting", "submitting")
NS = 1e-9


@dataclass(frozen=True)
class Cluster:
    """Where a run is simulated.

    Attributes
    ----------
    workers : int
        Compute workers, each of which has one thread.
    coordinator_threads : int
    cores : int or None
        Cores that all processes share; None if each process has a machine of its own, with a core for each thread.
    least_saving : float
        Seconds that the coordinator must save to let workers compute sums.
    """

    workers: int
    coordinator_threads: int = 2
    cores: int | None = None
    least_saving: float = field(default_factory=lambda: config.seconds_of("least-saving"))


@dataclass(frozen=True)
class Outcome:
    """What a simulated run took.

    Attributes
    ----------
    seconds : float
    parts : dict of str to float
        Seconds of the coordinator: waiting for batches, waiting for sums of the workers ("sharing"), and computing.
    busy, sending, scheduling, working : float
        Shares of the time: that the coordinator computes; that its link sends; that the scheduler handles tasks; that a worker
        computes, on average.
    sent, received : float
        Bytes from and to the coordinator.
    tasks : float
    computed : float
        Seconds of a thread that the work of all workers takes.
    """

    seconds: float
    parts: dict[str, float]
    busy: float
    sending: float
    scheduling: float
    working: float
    sent: float
    received: float
    tasks: float
    computed: float

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as JSON can hold it."""
        return asdict(self)


@dataclass
class _Task:
    """Something that a worker computes.

    Attributes
    ----------
    order : tuple of int
        The task with the least one is done first.
    seconds : float
    pulled : float
        Bytes of the plans that the worker pulls, apart from features.
    plan : int
        Number of the plan, if a worker pulls it once for several tasks, otherwise -1.
    slots, generation : int
        Of the feature store that the task refers to.
    returned : float
        Bytes of the result.
    times : float
        How many such tasks it stands for.
    """

    order: tuple[int, int]
    seconds: float
    pulled: float
    plan: int
    slots: int
    generation: int
    returned: float
    times: float
    done: Event = field(default_factory=Event)

    def __lt__(self, other: "_Task") -> bool:
        """Return whether this task comes first."""
        return self.order < other.order


@dataclass
class _Worker:
    """What a worker has: cores, the slots of the newest generation of features, and the last plan of sums."""

    cores: Cores
    slots: int = 0
    generation: int = -1
    plan: int = -1


def simulate(trace: Trace, costs: Costs, cluster: Cluster) -> Outcome:
    """Simulate a run.

    Parameters
    ----------
    trace : Trace
        What the run does.
    costs : Costs
        Must have values of the trace's width.
    cluster : Cluster
    """
    return Simulation(trace, costs, cluster).run()


class Simulation:
    """A simulated run; see `simulate`."""

    def __init__(self, trace: Trace, costs: Costs, cluster: Cluster) -> None:
        self.trace, self.cluster, self.messages, self.costs = trace, cluster, costs.messages, costs
        self.values = costs.values[trace.width]
        self.clock = Clock()
        crowding = self.values.crowding
        left = None if cluster.cores is None else cluster.cores - costs.messages.idle
        shared = None if left is None else Cores(self.clock, left, crowding)
        self.cores = shared or Cores(self.clock, cluster.coordinator_threads, crowding)
        self.workers = [_Worker(shared or Cores(self.clock, 1)) for _ in range(cluster.workers)]
        # What handles messages one after the other: the scheduler, the coordinator's event loop, and its link in both directions.
        self.scheduler, self.loop, self.outgoing, self.incoming = (Turns(self.clock) for _ in range(4))
        self.ready: list[_Task] = []
        self.idle: deque[Event] = deque()
        self.sent_tasks: dict[int, _Task] = {}
        self.unsent: list[int] = []
        self.requests: dict[int, list[int]] = {}
        for number, step in enumerate(trace.steps):
            self.requests.setdefault(step.requested, []).append(number)
        # As the runtime estimates it, not as it was measured: it decides what is sent together, and what workers compute.
        row = DenseFeatures.of(np.zeros((1, trace.width), np.float32))
        self.estimate = Kernel("rbf").seconds(row)
        self.sums = 0
        # When the coordinator was done with each step, by the clock.
        self.ends: list[float] = []
        self.parts = dict.fromkeys((*COMPUTING, "waiting", "sharing"), 0.0)
        self.seconds = self.sent = self.received = self.tasks = self.computed = 0.0
        self._since = 0.0

    def run(self) -> Outcome:
        """Run the simulation."""
        for worker in self.workers:
            self.clock.start(self._serve(worker))
        self.clock.start(self._coordinate())
        self.clock.run()
        total = max(self.seconds, 1e-12)
        return Outcome(
            self.seconds,
            self.parts,
            sum(self.parts[name] for name in COMPUTING) / total,
            self.sent * self.messages.byte / total,
            self.tasks * self.messages.task_each / total,
            self.computed / (total * self.cluster.workers),
            self.sent,
            self.received,
            self.tasks,
            self.computed,
        )

    # The coordinator

    def _coordinate(self) -> Process:
        """Apply the results in order, and request what is due after each."""
        yield from self._request(0)
        for number, step in enumerate(self.trace.steps):
            if step.rows:
                if number in self.unsent:
                    yield from self._send(True, step)
                yield self.sent_tasks.pop(number).done
                self._record("waiting", step)
            yield from self._apply(step)
            yield from self._request(number + 1)
            self.ends.append(self.clock.now)

    def _record(self, part: str, step: Step) -> None:
        """Add the time since the last record to a part."""
        taken = (self.clock.now - self._since) * step.times
        self._since = self.clock.now
        self.parts[part] += taken
        self.seconds += taken

    def _apply(self, step: Step) -> Process:
        """Do what the coordinator does with a result."""
        each, per_member = self.costs.bookkeeping
        yield self.cores.work(each + per_member * step.members)
        self._record("bookkeeping", step)
        # The rows of a piece of a batch are too few for two threads.
        yield self.cores.work(NS * step.updated * self.values.update)
        self._record("updating", step)
        yield from self._in_halves(NS * step.stored * self.values.store)
        self._record("storing", step)
        gathered = max(step.size**2 - step.squared, 0)
        square = NS * (step.squared * self.values.square + gathered * self.values.gather)
        yield from self._in_halves(square, step.size >= 2 * SQUARE_PART)
        self._record("squaring", step)
        if step.inner:
            yield self.cores.work(step.inner * self.costs.inner_step(step.size))
        self._record("solving", step)
        for shift in step.shifts:
            if self._worth_sharing(shift):
                yield from self._share(shift, step)
            else:
                kept = max(shift.rows * shift.changed - shift.computed, 0)
                seconds = NS * (shift.computed * self.values.sum + kept * self.values.kept)
                yield from self._in_halves(seconds, shift.rows > PIECE_ROWS)
            self._record("shifting", step)

    def _in_halves(self, seconds: float, possible: bool = True) -> Process:
        """Compute something, in two halves if the coordinator has two threads."""
        halves = 2 if possible and self.cluster.coordinator_threads > 1 else 1
        if not seconds:
            return
        yield from [self.cores.work(seconds / halves) for _ in range(halves)]

    def _request(self, applied: int) -> Process:
        """Request what the learner wants after a number of results."""
        new = self.requests.get(applied, [])
        self.unsent.extend(number for number in new if self.trace.steps[number].rows)
        step = self.trace.steps[max(applied - 1, 0)]
        yield from self._send(not new, step)
        self._record("submitting", step)

    def _send(self, everything: bool, step: Step) -> Process:
        """Send what waits in groups that fill a task; see `Coordinator._send`, which this follows."""
        while self.unsent:
            sizes = range(1, len(self.unsent))
            size = next((size for size in sizes if self._fills_a_task(self.unsent[:size])), len(self.unsent))
            group = self.unsent[:size]
            if not everything and not self._fills_a_task(group):
                return
            del self.unsent[:size]
            task = self._scoring([self.trace.steps[number] for number in group], group[0])
            self.sent_tasks |= dict.fromkeys(group, task)
            yield from self._submit(task)
            self._record("submitting", step)

    def _fills_a_task(self, numbers: list[int]) -> bool:
        """Return whether a group of batches is large enough for a task; see `Coordinator._fills_a_task`."""
        group = [self.trace.steps[number] for number in numbers]
        values, lookahead = sum(step.rows * step.support for step in group), self.trace.shape.lookahead
        if FEATURE * values >= TASK_BYTES:
            return True
        if len(group) < max(lookahead // (2 * len(self.workers)), 1):
            return False
        return values * self.estimate >= TASK_SECONDS or len(group) >= lookahead // 2

    def _scoring(self, group: list[Step], first: int) -> _Task:
        """Return the task that scores some batches."""
        values, rows = sum(step.rows * step.support for step in group), sum(step.rows for step in group)
        candidates = sum(step.candidates for step in group)
        return _Task(
            order=(0, first),
            seconds=NS * (values * self.values.score + rows * self.values.read),
            # Each plan has the slots and coefficients of its support vectors, and the numbers of its rows.
            pulled=NUMBER * sum(2 * step.support + step.rows for step in group),
            plan=-1,
            slots=group[-1].slots,
            generation=group[-1].generation,
            # Four numbers of each example, and the features and violations of the candidates.
            returned=4 * NUMBER * rows + candidates * (FEATURE * self.trace.width + NUMBER),
            times=group[0].times,
        )

    def _worth_sharing(self, shift: Shift) -> bool:
        """Return whether workers compute some sums; see `SharedSums`."""
        seconds, there = shift.rows * shift.changed * self.estimate, len(self.workers)
        saving = seconds / self.cluster.coordinator_threads - seconds / there
        return shift.movable and saving >= self.cluster.least_saving

    def _share(self, shift: Shift, step: Step) -> Process:
        """Let workers compute sums in parts, and wait for all of them."""
        self.sums += 1
        pieces, there = -(-shift.rows // PIECE_ROWS), len(self.workers)
        ends = np.unique(np.linspace(0, pieces, min(PARTS * there, pieces) + 1).astype(np.int64)).tolist()
        tasks = []
        for first, last in itertools.pairwise(ends):
            rows = min(last * PIECE_ROWS, shift.rows) - first * PIECE_ROWS
            task = _Task(
                order=(-PRIORITY, first),
                seconds=NS * rows * shift.changed * self.values.sum,
                # The slots of all members at which sums are needed, and slots and coefficients of those that changed.
                pulled=NUMBER * (shift.rows + 2 * shift.changed),
                plan=self.sums,
                slots=shift.slots,
                generation=shift.generation,
                returned=NUMBER * rows,
                times=step.times,
            )
            yield from self._submit(task)
            tasks.append(task)
        self._record("submitting", step)
        for task in tasks:
            yield task.done
        self._record("sharing", step)

    def _submit(self, task: _Task) -> Process:
        yield self.cores.work(self.messages.submit)
        self.tasks += task.times
        self.clock.start(self._deliver(task))

    # Messages and workers

    def _deliver(self, task: _Task) -> Process:
        """Bring a task to the workers."""
        if self.cluster.cores is not None:  # the processes that handle messages need the same cores
            self.cores.work(self.messages.task_cpu)
        yield self.scheduler.use(self.messages.task_each)
        yield self.clock.after(self._half_latency())
        heapq.heappush(self.ready, task)
        if self.idle:
            self.clock.fire(self.idle.popleft())

    def _half_latency(self) -> float:
        """Return how long a task or its result is on its way, apart from sending it and from handling it."""
        return max(self.messages.task - self.messages.submit - self.messages.task_each, 0.0) / 2

    def _next_task(self) -> Generator[Event, None, _Task]:
        """Wait for a task; the workers take them as they become idle."""
        while not self.ready:
            event = Event()
            self.idle.append(event)
            yield event
        return heapq.heappop(self.ready)

    def _serve(self, worker: _Worker) -> Process:
        """Do tasks, as a thread of a worker."""
        while True:
            task = yield from self._next_task()
            yield from self._pull(worker, task)
            self.computed += task.seconds * task.times
            yield worker.cores.work(task.seconds)
            self.clock.start(self._return(task))

    def _pull(self, worker: _Worker, task: _Task) -> Process:
        """Fetch the plans of a task and the features that the worker does not have, unless it has them all."""
        if task.plan >= 0 and task.plan == worker.plan:
            return
        held = worker.slots if worker.generation == task.generation else 0
        size = task.pulled + FEATURE * self.trace.width * max(task.slots - held, 0)
        worker.slots, worker.generation, worker.plan = max(task.slots, held), task.generation, task.plan
        self.sent += size * task.times
        yield self.loop.use(self.messages.call_each)
        yield self.outgoing.use(size * self.messages.byte)
        yield self.clock.after(max(self.messages.call - self.messages.call_each, 0.0))

    def _return(self, task: _Task) -> Process:
        """Bring a result to the coordinator."""
        self.received += task.returned * task.times
        yield self.incoming.use(task.returned * self.messages.byte)
        yield self.clock.after(self._half_latency())
        self.clock.fire(task.done)
