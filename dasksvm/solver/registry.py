"""Tables of named options, in which an unknown name is an error.

This module does not import NumPy or numba, so that the command line can list the names quickly.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import TypeVar

Value = TypeVar("Value")


def look_up(table: Mapping[str, Value], kind: str, name: str) -> Value:
    """Return the entry of a table with a name.

    Parameters
    ----------
    table : mapping of str
        The entries by name.
    kind : str
        What the entries are, for the error message.
    name : str

    Raises
    ------
    ValueError
        If the table has no such name.
    """
    if name not in table:
        raise ValueError(f"unknown {kind} {name!r}: it must be one of {', '.join(table)}.")
    return table[name]


class Registry(MutableMapping[str, Value]):
    """A table of named objects, each of which is imported when it is first looked up.

    Parameters
    ----------
    kind : str
        What the entries are, for error messages.
    locations : mapping of str
        Location of the object of each name: "package.module:OBJECT".

    Examples
    --------
    >>> from dasksvm.solver.registry import Registry
    >>> numbers = Registry("number", {"pi": "math:pi"})
    >>> list(numbers), numbers.find("pi") > 3
    (['pi'], True)
    """

    def __init__(self, kind: str, locations: Mapping[str, str]) -> None:
        self.kind = kind
        self._locations: dict[str, str | None] = dict(locations)
        self._loaded: dict[str, Value] = {}

    def find(self, name: str) -> Value:
        """Return the object with a name; the ValueError for an unknown name lists all names."""
        return look_up(self, self.kind, name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._locations

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._locations))

    def __len__(self) -> int:
        return len(self._locations)

    def __getitem__(self, name: str) -> Value:
        location = self._locations[name]
        if name not in self._loaded:
            assert location is not None
            module, _, attribute = location.partition(":")
            self._loaded[name] = getattr(import_module(module), attribute)
        return self._loaded[name]

    def __setitem__(self, name: str, value: Value) -> None:
        self._loaded[name] = value
        self._locations.setdefault(name, None)

    def __delitem__(self, name: str) -> None:
        del self._locations[name]
        self._loaded.pop(name, None)
