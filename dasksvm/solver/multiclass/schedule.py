"""Which kind of step comes next (paper 5, section 4.2.4 and algorithm 7), and the random numbers that it takes.

Steps are told apart by their number: TWO_NEWS (or PROCESS_NEW) is 0 and comes with a new pattern, the others follow until
0 is drawn again. A schedule's state is two arrays, which a snapshot can hold: `gains` and `random`. Time is counted in values
touched, and not in seconds, so that a run can be repeated.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.jit import njit

DECAY = 0.05
LEAST_PROBABILITY = 0.05
# Values touched in what the paper calls a second: its gains begin at 1 a second.
SECOND = 1e9
STRIDE = np.uint64(0x9E3779B97F4A7C15)


def initial_gains(steps: int) -> NDArray[np.float64]:
    """Give the adaptive schedule's state before its first step: dual increase per `SECOND` values, 1 for each kind."""
    return np.ones(steps)


def seeded(seed: int) -> NDArray[np.uint64]:
    """Give the state of a stream of random numbers."""
    return np.array([seed], np.uint64)


@njit()
def draw(random: Any) -> float:  # pragma: no cover
    """Draw a number in [0, 1) (splitmix64: the state counts, and is mixed)."""
    random[0] += STRIDE
    z = random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.float64(z >> np.uint64(11)) / 9007199254740992.0


@njit()
def skip(random: Any, count: int) -> None:  # pragma: no cover
    """Move a stream on as though so many numbers had been drawn."""
    random[0] += np.uint64(count) * STRIDE


@njit()
def multiplier(step: int, classes: int) -> int:  # pragma: no cover
    """How many steps of a kind are made in a row: one of a new pattern, as many as there are classes of the others."""
    return 1 if step == 0 else classes


@njit()
def record(gains: Any, step: int, increase: float, touched: int) -> None:  # pragma: no cover
    """Take in what a step achieved (algorithm 7, line 15)."""
    gains[step] = DECAY * max(increase, 0.0) * SECOND / max(touched, 1) + (1.0 - DECAY) * gains[step]


@njit()
def probabilities(gains: Any) -> Any:  # pragma: no cover
    """Give the probability of each kind: as its gain, but at least η."""
    steps = len(gains)
    total = np.sum(gains)
    shares = gains / total if total > 0.0 else np.full(steps, 1.0 / steps)
    return LEAST_PROBABILITY + (1.0 - steps * LEAST_PROBABILITY) * shares


@njit()
def next_adaptive(gains: Any, random: Any) -> int:  # pragma: no cover
    """Draw the next kind of step."""
    number, chances = draw(random), probabilities(gains)
    for step in range(len(gains) - 1):
        number -= chances[step]
        if number < 0.0:
            return step
    return len(gains) - 1


@njit()
def next_fixed(step: int, steps: int) -> int:  # pragma: no cover
    """Give the kind of step that follows in the fixed schedule: one after the other."""
    return (step + 1) % steps
