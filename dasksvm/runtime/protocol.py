"""What goes between the driver, the coordinator and the workers, beside the messages of the learner."""

from dataclasses import dataclass, field
from typing import Any

from dasksvm.data.coding import Coding
from dasksvm.data.sources import Form, Labels, Source
from dasksvm.solver.engine.preview import Finished
from dasksvm.solver.kernels.features import Features, Ints
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.messages import CandidateBatch, Choice, Progress, Targets, View
from dasksvm.training.snapshots import Memo
from dasksvm.training.timings import Timings


@dataclass(frozen=True)
class Post:
    """Where the coordinator of a run is reached.

    Attributes
    ----------
    run : str
        Of this attempt: a coordinator that replaces a lost one begins another.
    address, key : str
        Of its worker; of the actor.
    """

    run: str
    address: str
    key: str


@dataclass(frozen=True)
class Introduction:
    """What a worker has to know of a run before its first tile.

    Attributes
    ----------
    kernel : Kernel
    form : Form
    chunks : tuple of int
        Rows of each chunk of the data.
    base : int
        Id of the first row.
    coding : Coding
    source, columns : Source and Labels, or None
        Rows and labels that a worker reads by itself; None where they come with each task.
    """

    kernel: Kernel
    form: Form
    chunks: tuple[int, ...]
    base: int
    coding: Coding
    source: Source | None
    columns: Labels | None


@dataclass(frozen=True)
class Order:
    """A score plan on its way to a worker, without the members' features.

    Attributes
    ----------
    sequence : int
    rows : ndarray of int64, shape (m,)
    view : View
    slots : int
        Slots of the view's generation that it may refer to.
    targets : Targets or None
        What the rows should become, where the worker cannot read it.
    choice : Choice or None
    """

    sequence: int
    rows: Ints
    view: View
    slots: int
    targets: Targets | None
    choice: Choice | None


@dataclass(frozen=True)
class Orders:
    """What a worker pulls for a task: the plans, and the members' features that it lacks, by generation."""

    orders: list[Order]
    features: dict[int, Features]


@dataclass(frozen=True)
class Scored:
    """What a task gives back.

    Attributes
    ----------
    worker : str
        Its address.
    batches : list of CandidateBatch
    pulling, reading, tiling : float
        Seconds.
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
        Seconds after which the oldest batch is asked for a second time, at the earliest.
    attempts : int
        Times that a task may fail, by what may pass, before its error is the error of the run.
    """

    resources: bool
    late_after: float
    attempts: int


@dataclass(frozen=True)
class Begun:
    """What a coordinator found when it began.

    Attributes
    ----------
    applied : int
        Results that the learner had taken: of a snapshot, if it goes on from one.
    memo : Memo or None
        What came with the snapshot.
    warnings : list of str
        What the user should know.
    error : Exception or None
        Why it could not begin.
    """

    applied: int
    memo: Memo | None
    warnings: list[str]
    error: Exception | None


@dataclass(frozen=True)
class Turn:
    """What the driver asks of the coordinator.

    Attributes
    ----------
    number : int
        A turn that is delivered twice is taken once.
    seconds : float
        To go on for, about.
    clock : float
        Seconds since the run began.
    stop : int or None
        Stop the learner when it has taken so many results.
    memo : Memo or None
        To write a snapshot with, first.
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
        After each result, and at the end.
    done : bool
    waiting : bool
        Whether nothing came of it, because a batch has not come yet.
    error : Exception or None
        What ended the run early.
    warning : str or None
        What the user should know.
    timings : Timings
        Since the coordinator began.
    finished : Finished or None
        A copy that is shown after the last of the entries; the coordinator waits for what is said about it.
    finishing : float
        Seconds that the newest copy has taken.
    due : bool
        Whether it is time for a snapshot.
    stopped : bool
        Whether the learner has been stopped.
    """

    entries: list[Progress] = field(default_factory=list)
    done: bool = False
    waiting: bool = False
    error: Any = None
    warning: str | None = None
    timings: Timings = field(default_factory=Timings)
    finished: Finished | None = None
    finishing: float = 0.0
    due: bool = False
    stopped: bool = False
