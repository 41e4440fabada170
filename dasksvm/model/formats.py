"""The registry of model formats: what a `KernelModel` can be written as, and read from.

To add one, write a module with a `ModelFormat` and add a line here. `KernelModel` finds it by its name.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from dasksvm.solver.registry import Registry


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


FORMATS: Registry[ModelFormat] = Registry(
    "model format",
    {
        "native": "dasksvm.model.native:NATIVE",
        "libsvm": "dasksvm.model.libsvm:LIBSVM",
        "sklearn": "dasksvm.model.scikit_learn:SKLEARN",
    },
)
