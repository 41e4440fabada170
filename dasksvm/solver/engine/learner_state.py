"""The whole state of a learner as a flat mapping of arrays and scalars, and back. Snapshots stand on it."""

import copyreg
from dataclasses import asdict
from typing import Any

import numpy as np

from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.learners import LEARNERS, make_learner
from dasksvm.solver.engine.selection import Pools, RandomOrder
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.kernels.features import DenseFeatures, Features, FeatureStore, SparseFeatures
from dasksvm.solver.memory import reserve
from dasksvm.solver.messages import Choice, RowsPlan, ScorePlan, View
from dasksvm.solver.state.row_cache import RowCache

SCALARS = (
    "phase",
    "epoch",
    "position",
    "asked",
    "applied",
    "seen",
    "seen_before",
    "steps",
    "evaluations",
    "refreshes",
    "changed",
    "stopped",
    "converged",
    "strangers",
    "paused",
    "error",
)
POOLS = ("turn", "position", "free", "groups", "size", "mark")
VIEW = ("version", "alpha", "top", "bottom", "wants", "slack", "tau", "band", "tile", "exact")
State = dict[str, Any]


def state(learner: Learner) -> State:
    """Copy the state of a learner between two calls, as `view` gives it."""
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in view(learner).items()}


def view(learner: Learner) -> State:
    """Give the state of a learner between two calls; the arrays are its own, and change with the next call.

    Returns
    -------
    dict
        Of str to ndarray, int, float, bool or str. Kernel rows are in it, so that the run goes on bitwise.
    """
    s = learner.expansion
    out: State = {name: getattr(learner, name) for name in SCALARS}
    out |= {"expansion.evaluations": s.evaluations, "expansion.generation": s.generation}
    out["order.chunks"] = np.array(learner.order.chunks)
    out["order.seed"] = learner.order.seed
    out["order.base"] = learner.order.base
    out["seeds"] = learner.seeds
    out |= {"example": s.example, "code": s.code, "arrival": s.arrival}
    out["extremes"], out["violation"] = learner.extremes, learner.violation
    out |= {f"more.{name}": array for name, array in learner.more_state().items()}
    out["excess"] = learner.excess
    out["queue"] = np.zeros(0, np.int64) if learner.queue is None else learner.queue
    out["whole"] = learner.queue is None
    if learner.pools is not None:
        out |= {f"pools.{name}": getattr(learner.pools, name) for name in POOLS}
    out["drift"] = np.array(learner.drift.seen).reshape(len(learner.drift.seen), learner.settings.problems)
    out |= {f"working.{name}": array for name, array in s.working._asdict().items()}
    out |= _cache("cache", s.cache)
    if s.store is not None:
        out |= _features("store", s.members())
    out["finishing"] = len(learner.finishing)
    for at, now in enumerate(learner.finishing):
        out |= {f"finishing.{at}.{name}": value for name, value in now.state().items()}
        out |= {} if now.cache is None else _cache(f"finishing.{at}.cache", now.cache)
    out["inflight"] = np.array(sorted(learner.inflight), np.int64)
    for sequence, (plan, arrivals) in learner.inflight.items():
        out |= {f"plan.{sequence}.{name}": value for name, value in _plan(plan, s.generation).items()}
        out[f"plan.{sequence}.arrivals"] = arrivals
    return out


def restore(settings: Settings, state: State) -> Learner:
    """Make a learner that goes on where `state` was taken.

    Parameters
    ----------
    settings : Settings
        Those of the learner the state was taken from.
    state : dict
    """
    learner = make_learner(settings)
    for name in SCALARS:
        setattr(learner, name, state[name])
    s = learner.expansion
    s.evaluations, s.generation = state["expansion.evaluations"], state["expansion.generation"]
    chunks = tuple(int(rows) for rows in state["order.chunks"])
    learner.order = RandomOrder(chunks, state["order.seed"], state["order.base"])
    learner.seeds = state["seeds"]
    s.example, s.code, s.arrival = (state[name].copy() for name in ("example", "code", "arrival"))
    learner.extremes, learner.violation = state["extremes"].copy(), state["violation"].copy()
    learner.take_state({name: state[f"more.{name}"] for name in learner.more_state()})
    learner.excess = state["excess"].copy()
    learner.queue = None if state["whole"] else state["queue"].copy()
    if "pools.mark" in state:
        learner.pools = Pools(learner.order, settings.selection)
        for name in POOLS:
            setattr(learner.pools, name, state[f"pools.{name}"])
        learner.pools.mark = learner.pools.mark.copy()
    learner.drift.seen = list(state["drift"].copy())
    s.working = type(s.working)(*(state[f"working.{name}"].copy() for name in s.working._fields))
    s.cache = _read_cache("cache", state)
    if "store.kind" in state:
        s.store = FeatureStore(_read_features("store", state))
    for at in range(state["finishing"]):
        prefix = f"finishing.{at}."
        learner.begin_finishing(at)
        now = learner.finishing[-1]
        now.restore({name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)})
        if prefix + "cache.table" in state:
            now.cache = _read_cache(prefix + "cache", state)
    for sequence in state["inflight"]:
        prefix = f"plan.{sequence}."
        plan = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        learner.inflight[int(sequence)] = (_read_plan(int(sequence), plan, learner), plan["arrivals"])
    return learner


def _reduce(learner: Learner) -> tuple[Any, ...]:
    """Pickle a learner as its state; see `pickle.Pickler.dispatch_table`."""
    return restore, (learner.settings, state(learner))


for _kind in LEARNERS:
    copyreg.pickle(_kind, _reduce)


def _cache(prefix: str, cache: RowCache) -> State:
    out: State = {f"{prefix}.{name}": array for name, array in cache._asdict().items() if name != "pages"}
    filled = cache.pages[: int(cache.table.max(initial=-1)) + 1]
    return out | {f"{prefix}.filled_pages": filled, f"{prefix}.page_count": len(cache.pages)}


def _read_cache(prefix: str, state: State) -> RowCache:
    filled = state[f"{prefix}.filled_pages"]
    pages = reserve((int(state[f"{prefix}.page_count"]), filled.shape[1]), filled.dtype)
    pages[: len(filled)] = filled
    rest = {name: state[f"{prefix}.{name}"].copy() for name in RowCache._fields if name != "pages"}
    return RowCache(pages=pages, **rest)


def _features(prefix: str, features: Features) -> State:
    kind = "sparse" if isinstance(features, SparseFeatures) else "dense"
    arrays = {f"{prefix}.{name}": array for name, array in features.arrays().items()}
    return {f"{prefix}.kind": kind, f"{prefix}.columns": features.width, **arrays}


def _read_features(prefix: str, state: State) -> Features:
    def read(*names: str) -> State:
        return {name: state[f"{prefix}.{name}"].copy() for name in names}

    match state[f"{prefix}.kind"]:
        case "sparse":
            return SparseFeatures(**read("data", "indices", "indptr", "squares"), columns=state[f"{prefix}.columns"])
        case "dense":
            return DenseFeatures(**read("values", "squares"))
        case kind:
            raise ValueError(f"a snapshot has features of the unknown kind {kind!r}.")


def _plan(plan: ScorePlan | RowsPlan, generation: int) -> State:
    """A plan, with the number of slots that it refers to; with their features where its store is gone by now."""
    if isinstance(plan, RowsPlan):
        return {"slots": plan.slots, "order": plan.order, "count": len(plan.members)}
    published = plan.view
    out = {name: getattr(published, name) for name in VIEW}
    out["rows"] = plan.rows
    if plan.choice is not None:
        out |= {f"choice.{name}": value for name, value in asdict(plan.choice).items()}
    if published.members is not None and published.generation == generation:
        out |= {"order": published.order, "count": len(published.members)}
    elif published.members is not None:
        out |= _features("members", published.members.take(published.order))
    return out


def _read_plan(sequence: int, state: State, learner: Learner) -> ScorePlan | RowsPlan:
    s = learner.expansion
    order: Any = state.get("order")
    members = s.members().part(0, state["count"]) if "count" in state else None
    if "slots" in state:
        assert members is not None
        return RowsPlan(sequence, state["slots"], members, order)
    generation = s.generation
    if members is None:
        generation, order = -1 - sequence, np.arange(state["alpha"].shape[1])
        members = _read_features("members", state) if "members.kind" in state else None
    published = {name: state[name] for name in VIEW}
    machine = learner.settings.machine
    shown = View(generation=generation, members=members, order=order, machine=machine, **published)
    choice = {name.removeprefix("choice."): value for name, value in state.items() if name.startswith("choice.")}
    return ScorePlan(sequence, state["rows"], shown, Choice(**choice) if choice else None)
