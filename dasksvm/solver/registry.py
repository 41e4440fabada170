"""Options that have a name: a table says what each name stands for, and a name that is not in it is an error."""

from collections.abc import Mapping
from typing import TypeVar

Value = TypeVar("Value")


def look_up(table: Mapping[str, Value], what: str, name: str) -> Value:
    """Give what a name stands for.

    Parameters
    ----------
    table : mapping of str
        What each name stands for.
    what : str
        What kind of thing is named, for the error.
    name : str

    Raises
    ------
    ValueError
        If the table has no such name.
    """
    if name not in table:
        raise ValueError(f"unknown {what} {name!r}: it must be one of {', '.join(table)}.")
    return table[name]
