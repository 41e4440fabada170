"""The random number generator of the solvers: splitmix64, whose state is an array that a snapshot can hold.

NumPy's generators are not used, because jitted code draws from a stream and a stream must give the same numbers with every
version of NumPy.
"""

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.jit import njit

STRIDE = np.uint64(0x9E3779B97F4A7C15)


def seeded(seed: int) -> NDArray[np.uint64]:
    """Return the state of a new stream of random numbers."""
    return np.array([seed], np.uint64)


@njit()
def draw(random: NDArray[np.uint64]) -> float:  # pragma: no cover
    """Draw a number in [0, 1) from a stream. The state is a counter; the number is a hash of it."""
    random[0] += STRIDE
    z = random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.float64(z >> np.uint64(11)) / 9007199254740992.0


@njit()
def skip(random: NDArray[np.uint64], count: int) -> None:  # pragma: no cover
    """Advance a stream as if `count` numbers had been drawn."""
    random[0] += np.uint64(count) * STRIDE
