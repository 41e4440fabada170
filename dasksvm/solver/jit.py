"""The one home of the compile options of every jitted function of the solver."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

# Sums may be reordered and contracted, so that LLVM can vectorise them; NaN and inf keep their meaning.
SUMS = {"reassoc", "contract", "nsz", "arcp"}


def njit(*, fastmath: set[str] | bool = False, inline: bool = False) -> Callable[[Function], Function]:
    """Compile without the GIL, cached on disk, at first use.

    What is compiled copies arrays by loops: the assignment of one slice to another takes three seconds to compile.
    """
    decorator: Any = numba.njit(
        nogil=True,
        cache=True,
        error_model="numpy",
        fastmath=fastmath,
        inline="always" if inline else "never",
    )
    return cast(Callable[[Function], Function], decorator)
