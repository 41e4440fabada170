"""Names of features: which rows have them, and how columns in another order are matched to those of a model."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dasksvm.solver.kernels.features import Ints

# Names that an error lists.
SHOWN = 5


def names_of_frame(frame: Any) -> list[str] | None:
    """Give the names of the columns of a dataframe, or None where some are not text: numbers say nothing about the order."""
    names = frame.columns.tolist()
    return names if all(isinstance(name, str) for name in names) else None


def column_order(found: Sequence[str] | None, expected: Sequence[str] | None, what: str) -> Ints | None:
    """Tell in which order columns must be taken to stand as a model expects them.

    Parameters
    ----------
    found, expected : sequence of str, or None
        Names of the columns as they are, and as they should be; None if they are not known.
    what : str
        What has the columns, for the error.

    Returns
    -------
    ndarray of int64, shape (d,), or None
        None where the columns can stay as they are: the names are equal, or nothing is known of one side.

    Raises
    ------
    ValueError
        If the names are not the same set; it names the difference.
    """
    if found is None or expected is None or list(found) == list(expected):
        return None
    place = {name: at for at, name in enumerate(found)}
    missing = [name for name in expected if name not in place]
    known = set(expected)
    unexpected = [name for name in found if name not in known]
    if missing or unexpected:
        listed = (("missing", missing), ("not expected", unexpected))
        told = "; ".join(f"{kind}: {_listed(names)}" for kind, names in listed if names)
        raise ValueError(f"the features of {what} are not those of the training. {told[0].upper()}{told[1:]}.")
    if len(place) < len(found) or len(known) < len(expected):
        raise ValueError(
            f"the features of {what} are in another order than in the training, and cannot be matched by name: "
            "several columns have the same name."
        )
    return np.array([place[name] for name in expected], np.int64)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(repr(name) for name in names[:SHOWN]) + more
