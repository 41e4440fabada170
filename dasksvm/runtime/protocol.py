"""The messages between driver, coordinator and workers, in addition to the messages of the learner."""

from dataclasses import dataclass, field

from dasksvm.data.coding import Coding
from dasksvm.data.sources import Form, Labels, Source
from dasksvm.solver.engine.preview import Finished
from dasksvm.solver.kernels.features import Features, Ints
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.messages import CandidateBatch, Choice, Progress, SumsPlan, Targets, View
from dasksvm.training.snapshots import Memo
from dasksvm.training.timings import Timings


@dataclass(frozen=True)
class CoordinatorAddress:
    """The address of the coordinator of a run.

    Attributes
    ----------
    run : str
        Name of this attempt: a coordinator that replaces a lost one gets another name.
    address, key : str
        Address of its worker, and key of the actor.
    """

    run: str
    address: str
    key: str


@dataclass(frozen=True)
class RunDescription:
    """What a worker has to know about a run before its first tile.

    Attributes
    ----------
    kernel : Kernel
    form : Form
    chunks : tuple of int
        Number of rows of each chunk of the data.
    base : int
        Id of the first row.
    coding : Coding
    source, columns : Source and Labels, or None
        Rows and labels that a worker reads itself; None if they are sent with each task.
    """

    kernel: Kernel
    form: Form
    chunks: tuple[int, ...]
    base: int
    coding: Coding
    source: Source | None
    columns: Labels | None


@dataclass(frozen=True)
class WorkerPlan:
    """A score plan as it is sent to a worker, without the members' features.

    Attributes
    ----------
    sequence : int
    rows : ndarray of int64, shape (m,)
    view : View
    slots : int
        Number of slots of the view's generation that it may refer to.
    targets : Targets or None
        Labels and bounds of the rows, if the worker cannot read them.
    choice : Choice or None
    """

    sequence: int
    rows: Ints
    view: View
    slots: int
    targets: Targets | None
    choice: Choice | None


@dataclass(frozen=True)
class TaskPlans:
    """What a worker pulls for a task: the plans, and the members' features that it does not have, by generation."""

    plans: list[WorkerPlan]
    features: dict[int, Features]


@dataclass(frozen=True)
class SentSums:
    """What a worker pulls for a part of sums: the plan without features, and the features that the worker does not have."""

    plan: SumsPlan
    slots: int
    features: Features | None


@dataclass(frozen=True)
class Scored:
    """The result of a task.

    Attributes
    ----------
    worker : str
        Address of the worker.
    batches : list of CandidateBatch
    pulling, reading, tiling : float
        Seconds spent waiting for members, reading rows and computing tiles.
    """

    worker: str
    batches: list[CandidateBatch]
    pulling: float
    reading: float
    tiling: float


@dataclass(frozen=True)
class Options:
    """Operational settings of a run; the model does not depend on them.

    Attributes
    ----------
    resources : bool
        Whether the cluster marks its workers with the resources `coordinator` and `compute`.
    late_after : float
        Least number of seconds after which the oldest batch is requested again.
    attempts : int
        How often a task may fail with an error that may be temporary before the run fails.
    least_saving : float
        Seconds of the coordinator that it must save to let workers compute sums.
    """

    resources: bool
    late_after: float
    attempts: int
    least_saving: float


@dataclass(frozen=True)
class StartReport:
    """What a coordinator found when it began.

    Attributes
    ----------
    applied : int
        Number of results that the learner has applied: that of the snapshot, if it resumed from one.
    memo : Memo or None
        What was stored with the snapshot.
    warnings : list of str
        Messages for the user.
    error : Exception or None
        Why it could not begin.
    """

    applied: int
    memo: Memo | None
    warnings: list[str]
    error: Exception | None


@dataclass(frozen=True)
class Turn:
    """A request of the driver to the coordinator to continue.

    Attributes
    ----------
    number : int
        Number of the turn; one that is delivered twice is executed once.
    seconds : float
        About how long to continue.
    clock : float
        Seconds since the run began.
    stop : int or None
        Stop the learner when it has applied this many results.
    memo : Memo or None
        If given, write a snapshot with this memo first.
    """

    number: int
    seconds: float
    clock: float
    stop: int | None
    memo: Memo | None


@dataclass(frozen=True)
class Report:
    """What the coordinator did in one `advance`.

    Attributes
    ----------
    entries : list of Progress
        One after each result, and one at the end.
    done : bool
    waiting : bool
        Whether nothing was done, because the next batch has not arrived yet.
    error : Exception or None
        The error that ended the run.
    warning : str or None
        Message for the user.
    timings : Timings
        Timings since the coordinator began.
    finished : Finished or None
        A copy to be evaluated after the last of the entries; the coordinator waits for the driver's next turn.
    finishing : float
        Seconds that it took to finish the newest copy.
    due : bool
        Whether a snapshot is due.
    stopped : bool
        Whether the learner has been stopped.
    """

    entries: list[Progress] = field(default_factory=list)
    done: bool = False
    waiting: bool = False
    error: Exception | None = None
    warning: str | None = None
    timings: Timings = field(default_factory=Timings)
    finished: Finished | None = None
    finishing: float = 0.0
    due: bool = False
    stopped: bool = False
