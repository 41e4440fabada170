"""Feature names, and matching columns in another order to those of a model by name."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dasksvm.solver.kernels.features import Ints

# Number of names that an error lists.
SHOWN = 5


def names_of_frame(frame: Any) -> list[str] | None:
    """Return the column names of a dataframe, or None if some are not text: numbers do not identify columns."""
    names = frame.columns.tolist()
    return names if all(isinstance(name, str) for name in names) else None


def column_order(found: Sequence[str] | None, expected: Sequence[str] | None, what: str) -> Ints | None:
    """Return the order in which columns must be taken so that they match those of a model.

    Parameters
    ----------
    found, expected : sequence of str, or None
        Names of the columns as they are, and as they should be; None if they are not known.
    what : str
        Description of the rows, for the error message.

    Returns
    -------
    ndarray of int64, shape (d,), or None
        None if the order need not change: the names are equal, or one side has none.

    Raises
    ------
    ValueError
        If the two sets of names differ; the message lists the differences.
    """
    if found is None or expected is None or list(found) == list(expected):
        return None
    place = {name: at for at, name in enumerate(found)}
    missing = [name for name in expected if name not in place]
    known = set(expected)
    unexpected = [name for name in found if name not in known]
    if missing or unexpected:
        listed = (("missing", missing), ("not expected", unexpected))
        text = "; ".join(f"{kind}: {_listed(names)}" for kind, names in listed if names)
        raise ValueError(
            f"the features of {what} are not the same as those of the training data. {text[0].upper()}{text[1:]}."
        )
    if len(place) < len(found) or len(known) < len(expected):
        raise ValueError(
            f"the features of {what} are in another order than those of the training data and cannot be matched by name: "
            "several columns have the same name."
        )
    return np.array([place[name] for name in expected], np.int64)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(repr(name) for name in names[:SHOWN]) + more
