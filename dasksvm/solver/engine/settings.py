"""What defines a run and is common to all solvers. Each solver has a type of its own with the rest, beside its learner."""

from dataclasses import dataclass
from typing import ClassVar

from dasksvm.solver.engine.selection import Selection
from dasksvm.solver.kernels.kernel import Kernel


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What defines a run; with the data, the order and the seeds it defines the model.

    The type says which solver it is for; see `LEARNERS`.

    Attributes
    ----------
    kernel : Kernel
    problems : int
    epochs : int
        0 stands for "until no example of the whole set violates".
    max_examples, max_support : int
        Examples to see at most; support vectors, or members, at which a run ends.
    cache_bytes, inflight_bytes : int
        Bytes of kernel rows kept; of batches in flight.
    lookahead : int
        L, batches in flight.
    filter : bool
        Whether rows of candidates that will hardly enter are dropped where they are computed; see `GrowthEstimate`.
    selection : Selection
        How the next example is chosen.
    tau : float
        Violations up to this are left alone, and finishing stops there. Solvers without a bias, which have no such violations,
        leave it at 0.
    finish : bool
        Whether to end with finishing.
    seed : int
        Of the random choices among steps.
    """

    # Whether passes can go on until no example of the whole set violates.
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
