"""The state of an object as named arrays and scalars, and back. An object lists the fields that are its state."""

from typing import Any, ClassVar

import numpy as np

from dasksvm.solver.kernels.features import DenseFeatures, Features, FeatureStore, SparseFeatures
from dasksvm.solver.memory import reserve
from dasksvm.solver.state.row_cache import RowCache

State = dict[str, Any]


class Stateful:
    """An object whose state is the values of some of its fields.

    A field holds a number, a string, an array, a list of arrays of one shape, a named tuple of arrays, kernel rows, a feature
    store, another object of this kind, or None. A field that can be None is None in a new object.
    """

    # The names of these fields; all other fields follow from the arguments of the constructor.
    STATE: ClassVar[tuple[str, ...]] = ()

    def state(self) -> State:
        """Return the state; the arrays are the object's own and change with it."""
        out: State = {}
        for name in self.STATE:
            out |= capture(name, getattr(self, name))
        return out

    def restore(self, state: State) -> None:
        """Continue from a state, with copies of its arrays. Both objects must have been constructed with the same arguments."""
        for name in self.STATE:
            setattr(self, name, _restored(name, getattr(self, name), state))


def part_of(state: State, prefix: str) -> State:
    """Return the entries of a state whose names begin with a prefix, without the prefix."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def capture(name: str, value: Any) -> State:
    """Return the value of a field as named arrays and scalars; none for None, several for a value with parts."""
    if value is None:
        return {}
    if isinstance(value, list):
        return {name: np.array(value) if value else np.zeros((0, 0))}
    if isinstance(value, Stateful):
        parts = value.state()
    elif isinstance(value, RowCache):
        parts = _rows(value)
    elif isinstance(value, FeatureStore):
        parts = _features(value.view())
    elif isinstance(value, (DenseFeatures, SparseFeatures)):
        parts = _features(value)
    elif isinstance(value, tuple):
        parts = value._asdict()  # type: ignore[attr-defined]
    else:
        return {name: value}
    return {f"{name}.{part}": each for part, each in parts.items()}


def _restored(name: str, new: Any, state: State) -> Any:
    """Return the value of a field; `new` is its value in a new object."""
    if name in state:
        value = state[name].copy() if isinstance(state[name], np.ndarray) else state[name]
        return list(value) if isinstance(new, list) else value
    parts = part_of(state, f"{name}.")
    if not parts:
        if new is None:
            return None
        raise KeyError(f"the state has no {name!r}.")
    if isinstance(new, Stateful):
        new.restore(parts)
        return new
    if "page_count" in parts:
        return _read_rows(parts)
    if "feature_kind" in parts:
        return FeatureStore(read_features(parts))
    return type(new)(**{part: parts[part].copy() for part in new._fields})


def _rows(cache: RowCache) -> State:
    """Return the state of a row cache, without the pages that were never used."""
    out = {name: array for name, array in cache._asdict().items() if name != "pages"}
    return out | {"filled_pages": cache.pages[: int(cache.table.max(initial=-1)) + 1], "page_count": len(cache.pages)}


def _read_rows(state: State) -> RowCache:
    filled = state["filled_pages"]
    pages = reserve((int(state["page_count"]), filled.shape[1]), filled.dtype)
    pages[: len(filled)] = filled
    return RowCache(pages=pages, **{name: state[name].copy() for name in RowCache._fields if name != "pages"})


def _features(features: Features) -> State:
    kind = "sparse" if isinstance(features, SparseFeatures) else "dense"
    return {"feature_kind": kind, "columns": features.width, **features.arrays()}


def read_features(state: State) -> Features:
    """Return the features of a state that `capture` returned, without the prefix of its names."""

    def read(*names: str) -> State:
        return {name: state[name].copy() for name in names}

    match state["feature_kind"]:
        case "sparse":
            return SparseFeatures(**read("data", "indices", "indptr", "squares"), columns=state["columns"])
        case "dense":
            return DenseFeatures(**read("values", "squares"))
        case kind:
            raise ValueError(f"a snapshot has features of the unknown kind {kind!r}.")
