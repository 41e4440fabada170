"""The state of a learner as a flat mapping of arrays and scalars, and back; snapshots store this mapping.

A learner lists the fields that are its state (`STATE`). This module adds the objects that have to be constructed with arguments
before their state can be restored: the order, the pools, the finishers and the plans in flight.
"""

import copyreg
from dataclasses import asdict
from typing import Any

import numpy as np

from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.learners import LEARNERS, make_learner
from dasksvm.solver.engine.selection import Pools, RandomOrder
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.messages import Choice, RowsPlan, ScorePlan, View
from dasksvm.solver.state.capture import State, capture, part_of, read_features

VIEW_FIELDS = ("version", "alpha", "top", "bottom", "needed_classes", "slack", "tau", "band", "kernel_rows", "exact")


def state(learner: Learner) -> State:
    """Return a copy of the state of a learner between two calls; see `view`."""
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in view(learner).items()}


def view(learner: Learner) -> State:
    """Return the state of a learner between two calls; the arrays are the learner's own and change with the next call.

    Returns
    -------
    dict
        Arrays, numbers, bools and strings by name. It includes the kernel rows, so that a resumed run gives the same bits.
    """
    order, generation = learner.order, learner.expansion.generation
    out = learner.state() | capture("pools", learner.pools)
    out |= {"order.chunks": np.array(order.chunks), "order.seed": order.seed, "order.base": order.base}
    out["finishing"] = len(learner.finishing)
    for at, finisher in enumerate(learner.finishing):
        out |= {f"finishing.{at}.{name}": value for name, value in finisher.state().items()}
    out["inflight"] = np.array(sorted(learner.inflight), np.int64)
    for sequence, (plan, arrivals) in learner.inflight.items():
        out |= {f"plan.{sequence}.{name}": value for name, value in _plan_state(plan, generation).items()}
        out[f"plan.{sequence}.arrivals"] = arrivals
    return out


def restore(settings: Settings, state: State) -> Learner:
    """Return a learner that continues from a state.

    Parameters
    ----------
    settings : Settings
        The settings of the learner that the state was taken from.
    state : dict
    """
    learner = make_learner(settings)
    learner.restore(state)
    chunks = tuple(int(rows) for rows in state["order.chunks"])
    learner.order = RandomOrder(chunks, state["order.seed"], state["order.base"])
    pools = part_of(state, "pools.")
    if pools:
        learner.pools = Pools(learner.order, settings.selection)
        learner.pools.restore(pools)
    for at in range(state["finishing"]):
        learner.begin_finishing(at)
        learner.finishing[-1].restore(part_of(state, f"finishing.{at}."))
    for sequence in state["inflight"]:
        plan = part_of(state, f"plan.{sequence}.")
        learner.inflight[int(sequence)] = (_read_plan(int(sequence), plan, learner), plan["arrivals"])
    return learner


def _reduce(learner: Learner) -> tuple[Any, ...]:
    """Pickle a learner as its state; see `pickle.Pickler.dispatch_table`."""
    return restore, (learner.settings, state(learner))


for _kind in LEARNERS.values():
    copyreg.pickle(_kind, _reduce)


def _plan_state(plan: ScorePlan | RowsPlan, generation: int) -> State:
    """Return the state of a plan: with the number of slots it refers to, or with features if its store was replaced."""
    if isinstance(plan, RowsPlan):
        return {"slots": plan.slots, "order": plan.order, "count": len(plan.members)}
    published = plan.view
    out = {name: getattr(published, name) for name in VIEW_FIELDS}
    out["rows"] = plan.rows
    if plan.choice is not None:
        out |= {f"choice.{name}": value for name, value in asdict(plan.choice).items()}
    if published.members is not None and published.generation == generation:
        out |= {"order": published.order, "count": len(published.members)}
    elif published.members is not None:
        out |= capture("members", published.members.take(published.order))
    return out


def _read_plan(sequence: int, state: State, learner: Learner) -> ScorePlan | RowsPlan:
    s = learner.expansion
    order: Ints = state.get("order", np.zeros(0, np.int64))
    members = s.members().part(0, state["count"]) if "count" in state else None
    if "slots" in state:
        assert members is not None
        return RowsPlan(sequence, state["slots"], members, order)
    generation = s.generation
    if members is None:
        generation, order = -1 - sequence, np.arange(state["alpha"].shape[1])
        features = part_of(state, "members.")
        members = read_features(features) if features else None
    published = {name: state[name] for name in VIEW_FIELDS}
    restored_view = View(generation=generation, members=members, order=order, machine=s.machine, **published)
    choice = part_of(state, "choice.")
    return ScorePlan(sequence, state["rows"], restored_view, Choice(**choice) if choice else None)
