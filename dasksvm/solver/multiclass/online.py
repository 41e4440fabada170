"""The online iterations of a machine over the candidates of a batch (paper 5, algorithm 7).

Each new pattern gets a step of its own (TWO_NEWS), then the schedule draws what follows: steps among the patterns that are
there, as many in a row as there are classes, until it draws the next pattern. A pattern all of whose α are 0 leaves. LaRank
runs in the same way, with its own three steps.
"""

from typing import Any, NamedTuple

from dasksvm.solver.generator import draw
from dasksvm.solver.jit import njit
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
from dasksvm.solver.multiclass.working_arrays import evict, insert, random_member
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
    usable,
)
from dasksvm.solver.state.expansion import Expansion

NEW, OLD = 0, 1
# What a kernel value costs in values touched, a multiply-add counting a quarter: for each feature and class, and beside them.
# Cheaper ones would leave the dual of a pass behind the paper's, whose kernel values were dear.
FEATURE_WORK, VALUE_WORK = 0.25, 8.0


class Rules(NamedTuple):
    """What the user set: ε, the steps, how they are chosen and scheduled, and what a kernel value costs (values touched).

    `steps` counts the kinds of steps: 3, 4 with ONE_OLD_ONE_NEW, or 1 where patterns are taken in and solved for later.
    """

    tau: float
    steps: int
    strategy: int
    larank: bool
    adaptive: bool
    work: float


class Schedule(NamedTuple):
    """Where the schedule stands: gains (kinds,), random numbers (1,), the kind at hand (1,), the number drawn for it (1,)."""

    gains: Any
    random: Any
    kind: Any
    number: Any


def process(expansion: Expansion, batch: Batch, machine: Machine, rules: Rules, schedule: Schedule) -> None:
    """Process a batch."""
    while run(expansion.working, expansion.cache, batch, machine, rules, schedule) == ROW_MISSING:
        expansion.compute_row(int(batch.at[0, MISSING]))


@njit()
def run(w: Any, cache: Any, batch: Any, machine: Any, rules: Any, schedule: Any) -> int:  # pragma: no cover
    """Process a batch, or what is left of it. Returns DONE or ROW_MISSING (at[0, MISSING] says whose)."""
    at = batch.at[0]
    while at[CANDIDATE] < len(batch.row_of):
        if at[STAGE] == NEW:
            _new(w, cache, batch, machine, rules, schedule, at[CANDIDATE])
            at[SEEN] += 1
            at[STAGE], at[REPEAT] = OLD, 0
            schedule.kind[0] = _next(rules, schedule)
        while schedule.kind[0] != TWO_NEWS:
            if not _old(w, cache, batch, machine, rules, schedule):
                return ROW_MISSING
            schedule.number[0] = -1.0
            at[REPEAT] += 1
            if at[REPEAT] >= multiplier(schedule.kind[0], machine.classes):
                schedule.kind[0], at[REPEAT] = _next(rules, schedule), 0
        at[CANDIDATE] += 1
        at[STAGE] = NEW
    return DONE


@njit()
def _next(rules: Any, schedule: Any) -> int:  # pragma: no cover
    if rules.steps == 1:
        return TWO_NEWS
    if rules.adaptive:
        return int(next_adaptive(schedule.gains, schedule.random))
    return int(next_fixed(schedule.kind[0], rules.steps))


@njit()
def _new(w: Any, cache: Any, batch: Any, machine: Any, rules: Any, schedule: Any, c: int) -> None:  # pragma: no cover
    """Take a pattern in, if it violates, and make its first step; the cost of its kernel row counts either way."""
    at, k = batch.at[0], batch.row_of[c]
    at[PLACE] = -1
    raised, touched = 0.0, int(rules.work * w.count[0])
    if k >= 0 and batch.bound[0, c] > 0.0:
        place = batch.base + k
        insert(w, machine, place, batch.codes[c], batch.bound[0, c], w.score[:, place])
        if rules.steps == 1:
            at[ENTERED] += 1
            return
        if rules.larank:
            choice = larank_pair(w, machine, PROCESS_NEW, place)
        else:
            choice = first_variable(w, batch, machine, TWO_NEWS, rules.strategy, place, 0.0)
        batch.moved[0, k] = choice.violation - batch.excess[0, batch.chosen[k]]
        if choice.violation > rules.tau:
            if rules.larank:
                raised, moved = apply_line(w, cache, batch, machine, place, choice.first, choice.second)
            else:
                raised, moved = apply_pair(w, cache, batch, machine, place, choice.first, place, choice.second)
            touched += moved
            at[STEPS] += 1
        if w.load[place] > 0.0:
            at[PLACE] = place
            at[ENTERED] += 1
        else:
            evict(w, place)
    record(schedule.gains, TWO_NEWS, raised, touched)


@njit()
def _old(w: Any, cache: Any, batch: Any, machine: Any, rules: Any, schedule: Any) -> bool:  # pragma: no cover
    """Make a step among the patterns that are there. False if a kernel row is missing."""
    kind, strategy = schedule.kind[0], rules.strategy
    if schedule.number[0] < 0.0:
        schedule.number[0] = draw(schedule.random)
    raised, touched = 0.0, machine.classes
    if w.count[0] == 0:
        pass
    elif rules.larank:
        choice = larank_pair(w, machine, kind, random_member(w, schedule.number[0]))
        if choice.violation > rules.tau:
            if not usable(cache, batch, 0, choice.place):
                return False
            raised, moved = apply_line(w, cache, batch, machine, choice.place, choice.first, choice.second)
            _after(w, batch, choice.place)
            batch.at[0, STEPS] += 1
            touched += moved
    else:
        fresh = batch.at[0, PLACE]
        choice = first_variable(w, batch, machine, kind, strategy, fresh, schedule.number[0])
        touched = selection_cost(w, machine, kind, strategy, choice.second == SEARCH)
        if choice.violation > rules.tau:
            i, p, j, q = choice.place, choice.first, choice.place, choice.second
            if not usable(cache, batch, 0, i):
                return False
            if q == SEARCH:
                j, q = second_variable(w, cache, batch, machine, kind == TWO_OLD_SUPPORTS, i, p)
                if q != ALONE and not usable(cache, batch, 0, j):
                    return False
            raised, moved = apply_pair(w, cache, batch, machine, i, p, j, q)
            _after(w, batch, i)
            if q != ALONE and j != i:
                _after(w, batch, j)
            batch.at[0, STEPS] += 1
            touched += moved
    record(schedule.gains, kind, raised, touched)
    return True


@njit()
def _after(w: Any, batch: Any, place: int) -> None:  # pragma: no cover
    """After a step: a pattern all of whose α are 0 leaves."""
    if w.load[place] == 0.0:
        evict(w, place)
        if batch.at[0, PLACE] == place:
            batch.at[0, PLACE] = -1
