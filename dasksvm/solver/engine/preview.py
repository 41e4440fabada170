"""Intermediate models: finish a copy of the current state, without changing the state itself (paper 1, section 4.4)."""

from collections.abc import Generator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.engine.finisher import Finisher, outcome_of
from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.tiles import Map, member_rows
from dasksvm.solver.kernels.features import Features, Ints
from dasksvm.solver.memory import Workspace
from dasksvm.solver.messages import Message, Progress, RowsPlan

PHASE = "intermediate"


@dataclass(frozen=True)
class Finished(Message):
    """A finished copy of an expansion.

    Attributes
    ----------
    progress : Progress
        Of the copy; the kernel values that finishing needed are not counted.
    alpha : ndarray of float64, shape (P, S)
    features : Features
        Of the S support vectors.
    codes, examples : ndarray of int64, shape (S,)
        Their classes and ids.
    extremes : ndarray of float64, shape (P, 2)
        g_max and g_min of paper 1, equation 10.
    """

    progress: Progress
    alpha: NDArray[np.float64]
    features: Features
    codes: Ints
    examples: Ints
    extremes: NDArray[np.float64]


def is_due(every: tuple[int, ...], before: int, seen: int) -> bool:
    """Return whether, between `before` and `seen` examples, a multiple of one of the intervals in `every` was reached."""
    return any(seen // step > before // step for step in every)


def finished_copy(learner: Learner, parallel_map: Map = map) -> Finished:
    """Return a finished copy of a learner's expansion; see `copying`."""
    steps = copying(learner, parallel_map)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            finished: Finished = end.value
            return finished


def copying(learner: Learner, parallel_map: Map = map) -> Generator[None, None, Finished]:
    """Finish a copy of a learner's expansion, yielding after each round; the learner must not change in the meantime.

    The copy has a row cache of its own, of up to `cache_bytes`. Using the learner's would change which rows remain cached, and
    with it the last bits of the final model. If no support vector is free, the bias of the copy is determined by the members
    only, not by all examples.

    Parameters
    ----------
    learner : Learner
        After seeding; between two calls.
    parallel_map : callable
        See `member_rows`.
    """
    s, settings, workspace = learner.expansion.with_own_cache(), learner.settings, Workspace()
    copies: list[Finisher] = []
    while not copies or copies[-1].problem + 1 < settings.problems:
        problem = copies[-1].problem + 1 if copies else 0
        finisher = learner.finisher(s, problem, learner.preview_tau())
        while finisher.choose(s):
            missing = finisher.missing(s)
            if len(missing):
                plan = RowsPlan(0, missing, s.members(), finisher.order(s))
                finisher.put(s, member_rows(plan, settings.kernel, workspace, parallel_map).rows)
            finisher.solve(s)
            yield
        copies.append(finisher)
    found = outcome_of(copies)
    places = s.support(found.coefficients)
    progress = replace(learner.progress(), phase=PHASE, members=len(places), delta=found.delta, dual=found.dual)
    features = s.members().take(s.working.slot[places])
    return Finished(
        progress, found.coefficients[:, places], features, s.code[places], s.example[places], found.extremes
    )
