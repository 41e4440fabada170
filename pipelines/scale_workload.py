"""Traces of runs that are too large to make: power laws of the counts of smaller runs.

The laws are products of powers of the number of examples and of the settings of `Shape`. A setting has an exponent only if the
traces differ in it; the others are those of the traces. What a law says is limited by what is possible: there are no more
members than examples, and a round changes no more coefficients than its working set has.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dasksvm.estimators._fitting import CACHE_SIZE
from dasksvm.solver.blocks.learner import LARGEST_SET, SET_PART
from dasksvm.solver.engine.learner import LEAST_BATCH
from dasksvm.solver.kernels.uniform import TILE_ROWS
from pipelines.scale_trace import Shape, Shift, Step, Trace

# The first rounds, until this share of a pass, are not used for the laws of the first pass.
BEGINNING = 0.1
# The first pass is divided into parts that grow geometrically, from this share of the examples on; in each, some rounds are
# simulated, and stand for all. So do some rounds of finishing.
FIRST_PART, PARTS, ROUNDS, FINISHING_ROUNDS = 0.001, 8, 3, 12
# Lookaheads in a part, so that its pace is that of batches requested within it.
LOOKAHEADS = 3
# A feature store is made anew, and sent again, when it has this share of members more than there are.
COMPACTION = 0.25
# Pairs of members whose values are kept: a value of float32 stands for two of them, in the default budget.
KEPT_PAIRS = 2 * (CACHE_SIZE << 20) // 4
# What a round is described by: the rows of a pass, or of a part of it; per row the candidates, the members that enter, and the
# values that bring candidates up to date; the members of the working set; the members in play for each member of S; for each
# member of the working set, the steps, the coefficients that change, and the values kept for each member in play. In finishing,
# `size` is relative to what `BlocksLearner.finisher` chooses, and `rounds` tells how often a member of S is in a working set.
COUNTS = (
    "members",
    "support",
    "rows",
    "candidates",
    "arrived",
    "updated",
    "size",
    "inner",
    "columns",
    "changed",
    "stored",
    "rounds",
)
Counts = dict[str, float]


@dataclass(frozen=True)
class PowerLaw:
    """factor · x₁^e₁ · x₂^e₂ · ...

    Attributes
    ----------
    factor : float
    exponents : tuple of float
    """

    factor: float
    exponents: tuple[float, ...]

    def __call__(self, point: Sequence[float]) -> float:
        """Return the value at a point."""
        return self.factor * float(np.prod(np.power(np.asarray(point, np.float64), self.exponents)))

    @classmethod
    def fit(cls, points: Sequence[Sequence[float]], values: Sequence[float]) -> "PowerLaw":
        """Fit the logarithms of positive values by least squares; a variable that does not vary gets the exponent 0."""
        found = np.asarray(values, np.float64)
        positive = found > 0
        if not positive.any():
            return cls(0.0, (0.0,) * len(points[0]))
        x: NDArray[np.float64] = np.log(np.asarray(points, np.float64)[positive])
        y = np.log(found[positive])
        # Of all solutions `lstsq` returns the shortest, in which columns of zeros have the exponent 0.
        exponents = np.linalg.lstsq(x - x.mean(axis=0), y - y.mean(), rcond=1e-9)[0]
        return cls(float(np.exp(y.mean() - x.mean(axis=0) @ exponents)), tuple(exponents.tolist()))


Laws = dict[str, PowerLaw]


@dataclass(frozen=True)
class Workload:
    """The laws of the counts of a task.

    Attributes
    ----------
    task : str
    first : dict of str to PowerLaw
        Of a round of the first pass, by the examples seen so far.
    later, finishing : dict of str to PowerLaw
        Of the mean round of the second pass, if there is one, and of finishing, by all examples.
    shapes : tuple of Shape
        Of the traces.
    """

    task: str
    first: Laws
    later: Laws | None
    finishing: Laws
    shapes: tuple[Shape, ...]

    @classmethod
    def of(cls, traces: Sequence[Trace]) -> "Workload":
        """Fit the laws to some traces of a task, of which at least two must differ in the number of examples."""
        points = np.log([_point(trace.examples, trace.shape) for trace in traces])
        varying = (points - points.mean(axis=0))[:, np.ptp(points, axis=0) > 0]
        if not np.ptp(points[:, 0]) > 0:
            raise ValueError("laws of growth need traces of at least two numbers of examples.")
        if np.linalg.matrix_rank(varying) < varying.shape[1]:
            raise ValueError("the traces must vary each setting by itself, and not only together with others.")
        first: list[tuple[list[float], Counts]] = []
        later: list[tuple[list[float], Counts]] = []
        finishing: list[tuple[list[float], Counts]] = []
        for trace in traces:
            begin = BEGINNING * trace.examples
            rounds = _rounds(trace, 0)
            first += [
                (_point(steps[-1].seen, trace.shape), _counts(steps)) for steps in rounds if steps[-1].seen > begin
            ]
            point, rest, last = _point(trace.examples, trace.shape), _of(trace, "online", 1), _of(trace, "finishing")
            if rest:
                later.append((point, _counts(rest)))
            if last:
                finishing.append((point, _relative_to_rule(_counts(last), trace.shape)))
        shapes = tuple(dict.fromkeys(trace.shape for trace in traces))
        second = _fit(later) if len({point[0] for point, _ in later}) > 1 else None
        return cls(traces[0].task, _fit(first), second, _fit(finishing), shapes)

    def trace(self, examples: int, width: int, shape: Shape, expensive: bool) -> Trace:
        """Make the trace of a run.

        Parameters
        ----------
        examples, width : int
        shape : Shape
        expensive : bool
            Whether kernel values are kept.
        """
        return _Maker(self, examples, shape, expensive).trace(width)


def _point(examples: float, shape: Shape) -> list[float]:
    return [max(examples, 1.0), shape.batch, shape.working_set, shape.lookahead]


def _of(trace: Trace, phase: str, epoch: int | None = None) -> list[Step]:
    return [step for step in trace.steps if step.phase == phase and (epoch is None or step.epoch == epoch)]


def _rounds(trace: Trace, epoch: int) -> list[list[Step]]:
    """Group the steps of a pass by the round that follows them."""
    rounds: list[list[Step]] = [[]]
    for step in _of(trace, "online", epoch):
        rounds[-1].append(step)
        if step.size:
            rounds.append([])
    return [steps for steps in rounds if steps and steps[-1].size]


def _counts(steps: list[Step]) -> Counts:
    """Return the counts of some steps as `COUNTS` describes them."""
    rows, rounds = sum(step.rows for step in steps), max(sum(step.size > 0 for step in steps), 1)
    members, chosen = float(np.mean([step.members for step in steps])), max(sum(step.size for step in steps), 1)
    shifts = [shift for step in steps for shift in step.shifts]
    changed = sum(shift.changed for shift in shifts)
    columns = sum(shift.rows * shift.changed for shift in shifts) / max(changed, 1)
    per_row = 1 / max(rows, 1)
    return {
        "members": members,
        "support": sum(step.rows * step.support for step in steps) * per_row,
        "rows": float(rows),
        "candidates": sum(step.candidates for step in steps) * per_row,
        "arrived": (steps[-1].arrived - steps[0].arrived) * per_row,
        "updated": sum(step.updated for step in steps) * per_row,
        "size": chosen / rounds,
        "inner": sum(step.inner for step in steps) / chosen,
        "columns": columns / members,
        "changed": changed / chosen,
        "stored": sum(step.stored for step in steps) / max(chosen * columns, 1.0),
        "rounds": chosen / members,
    }


def _relative_to_rule(counts: Counts, shape: Shape) -> Counts:
    """Return the counts of finishing with the size of the working set relative to that which the learner chooses."""
    return counts | {"size": counts["size"] / _size_of_finishing(counts["members"], shape)}


def _size_of_finishing(members: float, shape: Shape) -> float:
    """Return how many members finishing chooses; see `BlocksLearner.finisher`."""
    return float(np.clip(members / SET_PART, shape.working_set, LARGEST_SET * shape.working_set))


def _fit(found: list[tuple[list[float], Counts]]) -> Laws:
    points = [point for point, _ in found]
    return {name: PowerLaw.fit(points, [counts[name] for _, counts in found]) for name in COUNTS}


class _Maker:
    """Makes the trace of a run from laws."""

    def __init__(self, workload: Workload, examples: int, shape: Shape, expensive: bool) -> None:
        self.workload, self.examples, self.shape, self.expensive = workload, examples, shape, expensive
        self.steps: list[Step] = []
        # Slots of the feature store that have been sent so far, and members that have entered.
        self.slots = self.arrived = 0

    def trace(self, width: int) -> Trace:
        """Make the trace."""
        edges = np.geomspace(FIRST_PART, 1.0, PARTS + 1) * self.examples
        for begin, end in zip([0.0, *edges[1:-1]], edges[1:], strict=True):
            self._pass(self.workload.first, 0, (begin + end) / 2, end - begin)
        if self.workload.later is not None:
            scored = self.workload.later["rows"](_point(self.examples, self.shape))
            self._pass(self.workload.later, 1, float(self.examples), min(scored, self.examples))
        self._finish()
        return Trace(self.workload.task, width, self.examples, self.shape, tuple(self.steps))

    def _at(self, laws: Laws, seen: float) -> Counts:
        """Return the counts after a number of examples, limited to what is possible."""
        found = {name: law(_point(seen, self.shape)) for name, law in laws.items()}
        found["members"] = min(found["members"], seen)
        found["support"] = min(found["support"], found["members"])
        found["columns"] = min(found["columns"] * found["members"], seen)
        for name in ("candidates", "arrived", "changed", "stored"):
            found[name] = min(found[name], 1.0)
        found["updated"] = min(found["updated"], found["candidates"] * found["members"])
        return found

    def _pass(self, laws: Laws, epoch: int, seen: float, rows: float) -> None:
        """Add the steps of a part of a pass: some of them, each of which stands for several."""
        counts = self._at(laws, seen)
        # As `BlocksLearner._batch_size` and `_batch` choose them: smaller at the beginning of a run.
        piece = int(np.clip(max(counts["members"] / 4, seen / 64), LEAST_BATCH, TILE_ROWS))
        batch = min(self.shape.batch, max(counts["members"] / 2, LEAST_BATCH))
        each = int(np.ceil(batch / piece))
        pieces = max(rows / piece, 1.0)
        count = int(min(max(ROUNDS, np.ceil(LOOKAHEADS * self.shape.lookahead / each)) * each, np.ceil(pieces)))
        growth = max(self._at(laws, seen + piece)["members"] - counts["members"], 0.0) if epoch == 0 else 0.0
        entering = counts["arrived"] * piece
        # Each compaction sends all members again; on average, each evicted member costs this many more.
        sent = entering + max(entering - growth, 0.0) / COMPACTION
        for number in range(count):
            self.slots += round(sent)
            self.arrived += round(entering)
            step = Step(
                "online",
                epoch,
                int(seen),
                int(counts["members"]),
                max(len(self.steps) - self.shape.lookahead + 1, 0),
                rows=piece,
                support=int(counts["support"]),
                slots=self.slots,
                candidates=round(counts["candidates"] * piece),
                arrived=self.arrived,
                updated=int(counts["updated"] * piece),
                times=pieces / count,
            )
            last = number % each == each - 1 or number == count - 1
            self.steps.append(self._with_round(step, counts) if last else step)

    def _with_round(self, step: Step, counts: Counts) -> Step:
        """Return a step that ends with a round."""
        size, columns = int(min(counts["size"], counts["members"])), int(counts["columns"])
        changed = int(counts["changed"] * size)
        kept = min(1.0, KEPT_PAIRS / max(counts["members"], 1.0) ** 2) if self.expensive else 0.0
        return replace(
            step,
            stored=int(kept * counts["stored"] * size * columns),
            squared=int((1 - kept) * size**2),
            size=size,
            inner=int(counts["inner"] * size),
            shifts=(Shift(columns, changed, int((1 - kept) * columns * changed), not self.expensive, self.slots, 0),),
        )

    def _finish(self) -> None:
        """Add the rounds of finishing: some of them, each of which stands for several."""
        counts = self._at(self.workload.finishing, float(self.examples))
        counts["size"] *= _size_of_finishing(counts["members"], self.shape)
        rounds = max(round(counts["rounds"] * counts["members"] / counts["size"]), 1)
        count = min(rounds, FINISHING_ROUNDS)
        for _ in range(count):
            step = Step(
                "finishing",
                self.steps[-1].epoch,
                self.examples,
                int(counts["members"]),
                len(self.steps),
                arrived=self.arrived,
                times=rounds / count,
            )
            self.steps.append(self._with_round(step, counts))
