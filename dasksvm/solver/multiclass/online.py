"""The online iterations of a machine over the candidates of a batch (paper 5, algorithm 7).

A step (TWO_NEWS) is made for each new pattern. Then the schedule draws the next kind of step: as many steps among the members as
there are classes, of the kind drawn, until it draws TWO_NEWS and the next pattern is processed. A pattern whose α are all 0 is
evicted. LaRank is run in the same way, with its own three kinds of steps.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.generator import draw
from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Ints, Values
from dasksvm.solver.multiclass.schedule import multiplier, next_adaptive, next_fixed, record
from dasksvm.solver.multiclass.steps import (
    ALONE,
    PROCESS_NEW,
    SEARCH,
    TWO_NEWS,
    TWO_OLD_SUPPORTS,
    apply_line,
    apply_pair,
    first_variable,
    larank_pair,
    second_variable,
    selection_cost,
)
from dasksvm.solver.multiclass.structure import Machine
from dasksvm.solver.multiclass.working_arrays import Working, evict, insert, random_member
from dasksvm.solver.state.batch import (
    CANDIDATE,
    DONE,
    ENTERED,
    MISSING,
    PLACE,
    REPEAT,
    ROW_MISSING,
    SEEN,
    STAGE,
    STEPS,
    Batch,
    row_available,
)
from dasksvm.solver.state.expansion import Expansion
from dasksvm.solver.state.row_cache import RowCache

NEW, MEMBERS = 0, 1
# The cost of a kernel value in units of one value read or written, where a multiply-add counts a quarter: for each feature and
# class, and a constant part. Kernel values were expensive in the paper's implementation; with a lower cost the schedule makes
# fewer steps among members, and the dual after one pass stays below the paper's.
FEATURE_WORK, VALUE_WORK = 0.25, 8.0


class MachineRules(NamedTuple):
    """The parameters of the solver.

    Attributes
    ----------
    tau : float
        ε: steps along smaller derivatives are not made.
    steps : int
        Number of kinds of steps: 3, 4 with ONE_OLD_ONE_NEW, or 1 if patterns only enter, to be solved for later.
    strategy : int
        How the variables of a step are chosen, see `steps.first_variable`.
    larank : bool
        Whether the steps are those of LaRank.
    adaptive : bool
        Whether the schedule is adaptive, not fixed.
    work : float
        The cost of a kernel value, as a number of values read or written.
    """

    tau: float
    steps: int
    strategy: int
    larank: bool
    adaptive: bool
    work: float


class Schedule(NamedTuple):
    """The state of the schedule.

    Attributes
    ----------
    gains : ndarray of float64, shape (kinds,)
    random : ndarray of uint64, shape (1,)
        State of the random number generator.
    kind : ndarray of int64, shape (1,)
        Kind of the current step.
    number : ndarray of float64, shape (1,)
        Random number of the current step; -1 before it is drawn.
    """

    gains: Values
    random: NDArray[np.uint64]
    kind: Ints
    number: Values


def process_batch(
    expansion: Expansion, batch: Batch, machine: Machine, rules: MachineRules, schedule: Schedule
) -> None:
    """Process a batch."""
    while _process_batch(expansion.working, expansion.cache, batch, machine, rules, schedule) == ROW_MISSING:
        expansion.compute_row(int(batch.progress[0, MISSING]))


@njit()
def _process_batch(
    w: Working, cache: RowCache, batch: Batch, machine: Machine, rules: MachineRules, schedule: Schedule
) -> int:  # pragma: no cover
    """Process a batch, or the rest of it. Returns DONE or ROW_MISSING (see progress[0, MISSING])."""
    progress = batch.progress[0]
    while progress[CANDIDATE] < len(batch.row_of):
        if progress[STAGE] == NEW:
            _process_new(w, cache, batch, machine, rules, schedule, progress[CANDIDATE])
            progress[SEEN] += 1
            progress[STAGE], progress[REPEAT] = MEMBERS, 0
            schedule.kind[0] = _next_kind(rules, schedule)
        while schedule.kind[0] != TWO_NEWS:
            if not _step_among_members(w, cache, batch, machine, rules, schedule):
                return ROW_MISSING
            schedule.number[0] = -1.0
            progress[REPEAT] += 1
            if progress[REPEAT] >= multiplier(schedule.kind[0], machine.classes):
                schedule.kind[0], progress[REPEAT] = _next_kind(rules, schedule), 0
        progress[CANDIDATE] += 1
        progress[STAGE] = NEW
    return DONE


@njit()
def _next_kind(rules: MachineRules, schedule: Schedule) -> int:  # pragma: no cover
    if rules.steps == 1:
        return TWO_NEWS
    if rules.adaptive:
        return int(next_adaptive(schedule.gains, schedule.random))
    return int(next_fixed(schedule.kind[0], rules.steps))


@njit()
def _process_new(
    w: Working, cache: RowCache, batch: Batch, machine: Machine, rules: MachineRules, schedule: Schedule, c: int
) -> None:  # pragma: no cover
    """Make the first step of a new pattern, which enters if it then has an α > 0.

    The cost of its kernel row is counted even if it does not enter.
    """
    progress, k = batch.progress[0], batch.row_of[c]
    progress[PLACE] = -1
    raised, touched = 0.0, int(rules.work * w.counts[0])
    if k >= 0 and batch.bound[0, c] > 0.0:
        place = batch.base + k
        insert(w, machine, place, batch.codes[c], batch.bound[0, c], w.score[:, place])
        if rules.steps == 1:
            progress[ENTERED] += 1
            return
        if rules.larank:
            choice = larank_pair(w, machine, PROCESS_NEW, place)
        else:
            choice = first_variable(w, batch, machine, TWO_NEWS, rules.strategy, place, 0.0)
        batch.growth[0, k] = choice.violation - batch.excess[0, batch.chosen[k]]
        if choice.violation > rules.tau:
            if rules.larank:
                raised, moved = apply_line(w, cache, batch, machine, place, choice.first, choice.second)
            else:
                raised, moved = apply_pair(w, cache, batch, machine, place, choice.first, place, choice.second)
            touched += moved
            progress[STEPS] += 1
        if w.load[place] > 0.0:
            progress[PLACE] = place
            progress[ENTERED] += 1
        else:
            evict(w, place)
    record(schedule.gains, TWO_NEWS, raised, touched)


@njit()
def _step_among_members(
    w: Working, cache: RowCache, batch: Batch, machine: Machine, rules: MachineRules, schedule: Schedule
) -> bool:  # pragma: no cover
    """Make a step among the members. Returns False if a kernel row is missing."""
    kind, strategy = schedule.kind[0], rules.strategy
    if schedule.number[0] < 0.0:
        schedule.number[0] = draw(schedule.random)
    raised, touched = 0.0, machine.classes
    if w.counts[0] == 0:
        pass
    elif rules.larank:
        choice = larank_pair(w, machine, kind, random_member(w, schedule.number[0]))
        if choice.violation > rules.tau:
            if not row_available(cache, batch, 0, choice.place):
                return False
            raised, moved = apply_line(w, cache, batch, machine, choice.place, choice.first, choice.second)
            _evict_if_zero(w, batch, choice.place)
            batch.progress[0, STEPS] += 1
            touched += moved
    else:
        fresh = batch.progress[0, PLACE]
        choice = first_variable(w, batch, machine, kind, strategy, fresh, schedule.number[0])
        touched = selection_cost(w, machine, kind, strategy, choice.second == SEARCH)
        if choice.violation > rules.tau:
            i, p, j, q = choice.place, choice.first, choice.place, choice.second
            if not row_available(cache, batch, 0, i):
                return False
            if q == SEARCH:
                j, q = second_variable(w, cache, batch, machine, kind == TWO_OLD_SUPPORTS, i, p)
                if q != ALONE and not row_available(cache, batch, 0, j):
                    return False
            raised, moved = apply_pair(w, cache, batch, machine, i, p, j, q)
            _evict_if_zero(w, batch, i)
            if q != ALONE and j != i:
                _evict_if_zero(w, batch, j)
            batch.progress[0, STEPS] += 1
            touched += moved
    record(schedule.gains, kind, raised, touched)
    return True


@njit()
def _evict_if_zero(w: Working, batch: Batch, place: int) -> None:  # pragma: no cover
    """Evict a pattern if its α are all 0 after a step."""
    if w.load[place] == 0.0:
        evict(w, place)
        if batch.progress[0, PLACE] == place:
            batch.progress[0, PLACE] = -1
