"""The settings that all solvers share; each solver derives a type of its own, which is defined with its learner."""

from dataclasses import dataclass
from typing import ClassVar

from dasksvm.solver.engine.selection import Selection
from dasksvm.solver.kernels.kernel import Kernel


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a run; together with the data, their order and the seeds they determine the model.

    The type determines the solver; see `LEARNERS`.

    Attributes
    ----------
    kernel : Kernel
    problems : int
    epochs : int
        Number of passes; 0: until no example of the whole set violates.
    max_examples, max_support : int
        Largest number of examples to process; number of support vectors, or members, at which a run ends.
    cache_bytes, inflight_bytes : int
        Memory for cached kernel rows, and for batches in flight.
    lookahead : int
        L, the number of batches in flight.
    filter : bool
        Whether kernel rows of candidates that will hardly enter are dropped by the executor; see `GrowthEstimate`.
    selection : Selection
        How the next example is chosen.
    tau : float
        Tolerance: smaller violations are ignored, and finishing stops there. Solvers without a bias do not use it.
    finish : bool
        Whether the run ends with finishing.
    seed : int
        Seed of the random choices of steps.
    """

    # Whether passes can be repeated until no example of the whole set violates.
    converges: ClassVar[bool] = True

    kernel: Kernel
    problems: int
    epochs: int
    max_examples: int
    max_support: int
    cache_bytes: int
    inflight_bytes: int
    lookahead: int
    filter: bool
    selection: Selection
    tau: float = 0.0
    finish: bool = True
    seed: int = 0
