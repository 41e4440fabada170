"""The compile options of all jitted functions of the solvers."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

# Flags for functions that compute sums: LLVM may reorder and contract them, and so vectorise; NaN and inf are still respected.
SUMS = {"reassoc", "contract", "nsz", "arcp"}


def njit(*, fastmath: set[str] | bool = False, inline: bool = False) -> Callable[[Function], Function]:
    """Return a decorator that compiles a function at its first call, to run without the GIL, with the code cached on disk.

    Jitted functions copy arrays in loops, because assigning one slice to another takes three seconds to compile.
    """
    decorator: Any = numba.njit(
        nogil=True,
        cache=True,
        error_model="numpy",
        fastmath=fastmath,
        inline="always" if inline else "never",
    )
    return cast(Callable[[Function], Function], decorator)
