"""What a run in blocks does, as counts without times: found by one process, and the same for any number of workers."""

import json
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from dasksvm import config
from dasksvm.config.blas import one_thread
from dasksvm.config.workspaces import Workspaces
from dasksvm.data.coding import Coding
from dasksvm.data.dataset import Dataset
from dasksvm.data.sources import Examples
from dasksvm.estimators._fitting import SharedSettings
from dasksvm.estimators.lasvc import LaSVC
from dasksvm.solver.blocks.kernel_values import KernelValues
from dasksvm.solver.blocks.learner import BATCH, WORKING_SET, BlocksLearner, BlocksSettings
from dasksvm.solver.engine.choice import execute
from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.engine.tiles import member_rows
from dasksvm.solver.kernels.features import Flags, Floats, Ints, Values
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.messages import CandidateBatch, Plan, Result, RowsPlan, TimedPart
from dasksvm.solver.state.expansion import Expansion, Tools
from dasksvm.solver.state.row_cache import CLOCK
from dasksvm.training.local_executor import Source
from dasksvm.training.timings import PartTimer, Timings


@dataclass(frozen=True)
class Shape:
    """What counts depend on: the settings of a run that a sweep chooses.

    Attributes
    ----------
    batch, working_set : int
        See `BlocksSettings`.
    lookahead : int
        Pieces of batches in flight.
    """

    batch: int
    working_set: int
    lookahead: int


@dataclass(frozen=True)
class Shift:
    """A move of gradients: weighted sums at `rows` members over the `changed` ones.

    Attributes
    ----------
    rows, changed : int
    computed : int
        Kernel values that are computed; the others are kept.
    movable : bool
        Whether workers may compute it.
    slots, generation : int
        Of the feature store that they need.
    """

    rows: int
    changed: int
    computed: int
    movable: bool
    slots: int
    generation: int


@dataclass(frozen=True)
class Step:
    """What the coordinator does with one result, and with the plans that it makes then.

    Attributes
    ----------
    phase : str
    epoch, seen, members : int
        After the result.
    requested : int
        Number of results that had been applied when it was requested.
    rows, support : int
        Examples that are scored, and the support vectors that they are scored against; no rows in a round of finishing.
    slots, generation : int
        Of the feature store that the request refers to.
    candidates, arrived : int
        Examples whose features are returned; members that have entered so far.
    updated, stored, squared : int
        Kernel values computed to bring candidates up to date, to keep rows, and for the square of a round.
    size, inner : int
        Members of the working set, and steps in it; 0 without a round.
    shifts : tuple of Shift
    times : float
        How many steps like this one it stands for.
    """

    phase: str
    epoch: int
    seen: int
    members: int
    requested: int
    rows: int = 0
    support: int = 0
    slots: int = 0
    generation: int = 0
    candidates: int = 0
    arrived: int = 0
    updated: int = 0
    stored: int = 0
    squared: int = 0
    size: int = 0
    inner: int = 0
    shifts: tuple[Shift, ...] = ()
    times: float = 1.0

    @property
    def evaluations(self) -> int:
        """Kernel values computed for this step, by anyone."""
        values = self.rows * self.support + self.updated + self.stored + self.squared
        return values + sum(shift.computed for shift in self.shifts)


@dataclass(frozen=True)
class Trace:
    """The steps of a run.

    Attributes
    ----------
    task : str
    width : int
        Features of a row.
    examples : int
    shape : Shape
    steps : tuple of Step
    """

    task: str
    width: int
    examples: int
    shape: Shape
    steps: tuple[Step, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the trace as JSON can hold it."""
        found: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return found

    @classmethod
    def of_json(cls, found: dict[str, Any]) -> "Trace":
        """Read a trace from what `as_json` returned."""
        steps = (Step(**step | {"shifts": tuple(Shift(**each) for each in step["shifts"])}) for step in found["steps"])
        return cls(**found | {"shape": Shape(**found["shape"]), "steps": tuple(steps)})


def default_shape() -> Shape:
    """Return the settings of LaSVC."""
    return Shape(BATCH, WORKING_SET, int(config.get("lookahead")))


def trace_of(name: str, data: Dataset, parameters: dict[str, float], shape: Shape) -> Trace:
    """Train LaSVC in blocks on a data set of two classes, without a cluster, and count.

    Parameters
    ----------
    name : str
        Of the task.
    data : Dataset
    parameters : dict
        C and gamma.
    shape : Shape
    """
    if len(data.classes) != 2:
        raise ValueError(f"{name} has {len(data.classes)} classes: only runs with two can be traced.")
    estimator = Traced(C=parameters["C"], gamma=parameters["gamma"], engine="blocks", random_state=0)
    estimator.shape = shape
    estimator._fit(data, None, None, ())
    return Trace(name, data.shape[1], len(data), shape, tuple(estimator.steps))


class Traced(LaSVC):
    """LaSVC that counts what a run does, and how long its parts take one thread."""

    shape: Shape
    steps: list[Step]
    timings: Timings

    def _settings(self, shared: SharedSettings, shape: tuple[int, int], coding: Coding) -> Settings:
        settings = super()._settings(shared, shape, coding)
        assert isinstance(settings, BlocksSettings)
        return replace(settings, **asdict(self.shape))

    def _run(
        self, learner: Learner, examples: Examples, callbacks: Any, make_checkpoint: Any = None
    ) -> tuple[Learner, list[dict[str, Any]], Timings]:
        assert isinstance(learner, BlocksLearner)
        self.timings = Timings()
        self.steps = steps_of(learner, examples, self.timings)
        return learner, [], self.timings


def steps_of(learner: BlocksLearner, source: Source, timings: Timings) -> list[Step]:
    """Run a learner that has been fed on one thread, and return what it did; how long that took is added to `timings`.

    Results are those that workers send, so that nothing is counted that only one process would do.
    """
    counter = _Counter(learner, PartTimer(timings))
    learner.use_tools(Tools(observe=counter))
    kernel, workspace = learner.settings.kernel, Workspaces().of_this_thread()
    steps: list[Step] = []
    with one_thread():
        waiting = deque((plan, 0) for plan in learner.plans())
        while waiting:
            plan, requested = waiting.popleft()
            result: Result
            if isinstance(plan, RowsPlan):
                result = member_rows(plan, kernel, workspace)
            else:
                features, targets, start = source.features(plan.rows), source.targets(plan.rows), perf_counter()
                result = execute(plan, kernel, features, targets, workspace)
                timings.tiling += perf_counter() - start
            start = perf_counter()
            progress = learner.take(result)
            waiting.extend((each, learner.applied) for each in learner.plans())
            timings.taking += perf_counter() - start
            about = _request(plan, result) | counter.counts()
            steps.append(Step(progress.phase, progress.epoch, progress.seen, progress.members, requested, **about))
    learner.use_tools(Tools())
    return steps


def _request(plan: Plan, result: Result) -> dict[str, Any]:
    """Return the counts of a request and its result."""
    if isinstance(plan, RowsPlan):
        return {}
    assert isinstance(result, CandidateBatch)
    members = plan.view.members
    return {
        "rows": len(plan.rows),
        "support": len(plan.view.order),
        "slots": 0 if members is None else len(members),
        "generation": plan.view.generation,
        "candidates": len(result.features),
    }


class _Counter:
    """Counts what a learner does; it is told of the parts of the work as `Tools.observe`.

    Parameters
    ----------
    learner : BlocksLearner
        Gets kernel values that are counted.
    timer : PartTimer
    """

    def __init__(self, learner: BlocksLearner, timer: PartTimer) -> None:
        self._learner, self._timer = learner, timer
        self._values: dict[TimedPart, int] = {}
        self._inner = 0
        self._shapes = _CountedValues(learner.settings.kernel, learner.expansion.kernel_values.budget)
        learner.expansion.kernel_values = self._shapes

    @contextmanager
    def __call__(self, part: TimedPart) -> Iterator[None]:
        """Count the kernel values of a part until the context ends."""
        before = self._learner.expansion.evaluations
        with self._timer(part):
            yield
        self._values[part] = self._values.get(part, 0) + self._learner.expansion.evaluations - before

    def counts(self) -> dict[str, Any]:
        """Return the counts since the last call."""
        inner = self._learner.progress().steps
        found = {
            "arrived": int(self._learner.expansion.cache.size[CLOCK]),
            "updated": self._values.get("updating", 0),
            "stored": self._values.get("storing", 0),
            "squared": self._values.get("squaring", 0),
            "size": self._shapes.size,
            "inner": inner - self._inner,
            "shifts": tuple(self._shapes.shifts),
        }
        self._values, self._inner = {}, inner
        self._shapes.size, self._shapes.shifts = 0, []
        return found


class _CountedValues(KernelValues):
    """Kernel values that count the members of working sets, and the members and coefficients of shifts."""

    def __init__(self, kernel: Kernel, budget: int) -> None:
        super().__init__(kernel, budget)
        self.size = 0
        self.shifts: list[Shift] = []

    def squares(self, s: Expansion, chosen: list[Ints]) -> list[Floats]:
        self.size += sum(len(places) for places in chosen)
        return super().squares(s, chosen)

    def move_gradients(self, s: Expansion, g: Values, at: Flags, changed: Ints, amounts: Values) -> None:
        before, rows = s.evaluations, int(np.count_nonzero(at))
        super().move_gradients(s, g, at, changed, amounts)
        if len(changed) and rows:
            self._note(s, rows, len(changed), s.evaluations - before, movable=self.kept is None)

    def _note(self, s: Expansion, rows: int, changed: int, computed: int, *, movable: bool) -> None:
        self.shifts.append(Shift(rows, changed, computed, movable, len(s.members()), s.generation))
