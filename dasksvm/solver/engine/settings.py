"""What defines a run; with the data, the order and the seeds it defines the model."""

from dataclasses import dataclass

from dasksvm.solver.decomposition.rules import DecompositionRules
from dasksvm.solver.engine.selection import Selection
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.lasvm.steps import Rules
from dasksvm.solver.multiclass.online import Rules as Steps
from dasksvm.solver.multiclass.structure import Machine
from dasksvm.solver.unbiased.gap_steps import GapRules
from dasksvm.solver.unbiased.tracking_steps import TrackingRules


@dataclass(frozen=True)
class Settings:
    """What defines a run; with the data, the order and the seeds it defines the model.

    Attributes
    ----------
    kernel : Kernel
    rules : Rules
        Of the online iterations; its `tau` is also where finishing stops.
    problems : int
    machine : Machine or None
        A multi-class machine, and not two-class problems.
    steps : Rules or None
        Of a machine's online iterations.
    gap : GapRules or None
        Of LASVM-G and its kin: no bias, one coefficient at a time.
    tracking : TrackingRules or None
        Of random coordinate ascent: no bias either.
    decomposition : DecompositionRules or None
        Of the batch solvers: the problem of all examples, in pairs or blocks.
    seed : int
        Of the random choices among steps.
    epochs : int
        0 stands for "until no example of the whole set violates".
    finish : bool
        Whether to end with finishing.
    max_examples : int
        Examples to see at most.
    cache_bytes, inflight_bytes : int
        Bytes of kernel rows kept; of batches in flight.
    lookahead : int
        L, batches in flight.
    filter : bool
        Whether rows of candidates that will hardly enter are dropped where they are computed; see `Slack`.
    selection : Selection
        How the next example is chosen.
    """

    kernel: Kernel
    rules: Rules
    problems: int
    epochs: int
    finish: bool
    max_examples: int
    cache_bytes: int
    inflight_bytes: int
    lookahead: int
    filter: bool
    selection: Selection
    machine: Machine | None = None
    steps: Steps | None = None
    gap: GapRules | None = None
    tracking: TrackingRules | None = None
    decomposition: DecompositionRules | None = None
    seed: int = 0
