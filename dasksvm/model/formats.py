"""The registry of model formats: what else a `KernelModel` can be written as, and read from.

A format is a module that registers itself when `dasksvm.model` is imported. `KernelModel` finds it here by its name.
"""

from collections.abc import Callable
from typing import Any, NamedTuple


class ModelFormat(NamedTuple):
    """How models are written and read.

    Attributes
    ----------
    write : callable
        Called with the model, and with a path where the format is a file; returns the object where it is one.
    read : callable
        Called with a path or an object, and with what else the format needs; returns the model.
    """

    write: Callable[..., Any]
    read: Callable[..., Any]


FORMATS: dict[str, ModelFormat] = {}
