"""Which kind of step comes next (paper 5, section 4.2.4 and algorithm 7).

Each kind of step has a number. TWO_NEWS (or PROCESS_NEW) is 0 and is made for a new pattern; the other kinds follow until 0
is drawn again. The state of a schedule is two arrays, which a snapshot can hold: `gains` and `random`. The paper divides a
gain by the seconds that the step took; here it is divided by the number of values read or written, so that a run can be
repeated exactly.
"""

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.generator import draw
from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Values

DECAY = 0.05
LEAST_PROBABILITY = 0.05
# Number of values read or written that counts as a second of the paper, where every gain begins at 1 per second.
SECOND = 1e9


def initial_gains(steps: int) -> NDArray[np.float64]:
    """Return the adaptive schedule's initial state: a dual increase of 1 per `SECOND` values for each kind of step."""
    return np.ones(steps)


@njit()
def multiplier(step: int, classes: int) -> int:  # pragma: no cover
    """Return how many steps of a kind are made in a row: one for a new pattern, else as many as there are classes."""
    return 1 if step == 0 else classes


@njit()
def record(gains: Values, step: int, increase: float, touched: int) -> None:  # pragma: no cover
    """Update the gain of a kind of step after a step of this kind (algorithm 7, line 15)."""
    gains[step] = DECAY * max(increase, 0.0) * SECOND / max(touched, 1) + (1.0 - DECAY) * gains[step]


@njit()
def probabilities(gains: Values) -> Values:  # pragma: no cover
    """Return the probability of each kind of step: proportional to its gain above a minimum of η."""
    steps = len(gains)
    total = np.sum(gains)
    shares = gains / total if total > 0.0 else np.full(steps, 1.0 / steps)
    return LEAST_PROBABILITY + (1.0 - steps * LEAST_PROBABILITY) * shares


@njit()
def next_adaptive(gains: Values, random: NDArray[np.uint64]) -> int:  # pragma: no cover
    """Draw the next kind of step."""
    number, chances = draw(random), probabilities(gains)
    for step in range(len(gains) - 1):
        number -= chances[step]
        if number < 0.0:
            return step
    return len(gains) - 1


@njit()
def next_fixed(step: int, steps: int) -> int:  # pragma: no cover
    """Return the kind of step that follows in the fixed schedule, which takes the kinds in turn."""
    return (step + 1) % steps
