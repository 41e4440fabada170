"""The messages between the learner and the executor of its plans. Every array in a message is read-only.

The learner returns plans (`ScorePlan`, `RowsPlan`); the executor answers each with a result (`CandidateBatch`, `MemberRows`).
"""

from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.kernels.features import Features, Floats, Ints, frozen
from dasksvm.solver.memory import Workspace
from dasksvm.solver.multiclass.structure import Machine


class Message:
    """A frozen dataclass whose arrays are made read-only when it is made."""

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if isinstance(value, np.ndarray):
                object.__setattr__(self, each.name, frozen(value))


Rows = Literal["needed", "useful", "unused"]
# Where a view has the copy that `View.support` returns.
SUPPORT = "_support"
# What the block engine does with results; see `training.timings`.
TimedPart = Literal["updating", "storing", "squaring", "solving", "shifting", "verifying"]


@dataclass(frozen=True)
class View(Message):
    """The published state of S at a version: P problems, V places.

    Attributes
    ----------
    version : int
        Batches applied so far.
    generation : int
        Number of the feature store. Within a generation slots are only appended; a negative one belongs to this view only.
    members : Features
        The feature store, by slot; None before there is one.
    order : ndarray of int64, shape (V,)
        Slot of each place; for a free place any slot, with α = 0.
    alpha : ndarray of float64, shape (P, V)
    top, bottom : ndarray of float64, shape (P,)
        Largest gradient of a member whose α may rise, smallest of one whose α may fall; with `band` the ends of the band.
    needed_classes : ndarray of bool, shape (P, 2)
        Whether negative and positive examples are to be returned while the other class is missing from S.
    slack : ndarray of float64, shape (P,)
        By how much a violation may grow between this version and the use of the result; with inf every candidate is returned.
    tau : float
    machine : Machine or None
        The multi-class machine that `alpha` belongs to, with one row per class; None for two-class problems.
    band : bool
        Whether the problem has no bias, and an example enters if 1 - y f lies between `bottom` and `top`.
    kernel_rows : {"needed", "useful", "unused"}
        Whether the result has kernel rows of the candidates, and not only their features. If they are useful, they save the
        learner some work, and the result has them if it stays on this machine.
    exact : bool
        Whether margins are computed in float64, whatever the type of the features; only without kernel rows.
    """

    version: int
    generation: int
    members: Features | None
    order: Ints
    alpha: NDArray[np.float64]
    top: NDArray[np.float64]
    bottom: NDArray[np.float64]
    needed_classes: NDArray[np.bool_]
    slack: NDArray[np.float64]
    tau: float
    machine: Machine | None = None
    band: bool = False
    kernel_rows: Rows = "needed"
    exact: bool = False

    def support(self, workspace: Workspace) -> Features:
        """Return the features of the V places, copied once for all batches that are scored against this view."""
        held: dict[str, Any] = vars(self)
        if SUPPORT not in held:
            assert self.members is not None
            held[SUPPORT] = self.members.borrow(self.order, workspace)
        features: Features = held[SUPPORT]
        return features

    def share_support(self, other: "View") -> None:
        """Use the copy of another view with the same members and order, if it has one."""
        held = vars(other)
        if SUPPORT in held:
            vars(self)[SUPPORT] = held[SUPPORT]


@dataclass(frozen=True)
class Choice:
    """The selection of examples within a plan: the best example of each of several groups of candidates.

    Attributes
    ----------
    criterion : str
        One of `engine.criteria.CRITERIA` that chooses among candidates.
    size : int
        Candidates in a group; with an adaptive criterion the largest number that a group can have.
    groups : int
        Largest number of groups.
    """

    criterion: str
    size: int
    groups: int


@dataclass(frozen=True)
class ScorePlan(Message):
    """A request to score some examples against a version of S, with their kernel rows.

    Attributes
    ----------
    sequence : int
        Number of the plan; the learner applies results strictly in this order.
    rows : ndarray of int64, shape (m,)
        Ids of the examples.
    view : View
    choice : Choice or None
        How to select some of the examples; None to score all of them.
    """

    sequence: int
    rows: Ints
    view: View
    choice: Choice | None = None

    @property
    def most_results(self) -> int:
        """The largest number of examples that the result can have."""
        return len(self.rows) if self.choice is None else self.choice.groups


@dataclass(frozen=True)
class RowsPlan(Message):
    """A request for the kernel rows of some members against S.

    Attributes
    ----------
    sequence : int
    slots : ndarray of int64, shape (u,)
        Slots of the members whose rows are to be computed.
    members : Features
        The feature store, by slot.
    order : ndarray of int64, shape (V,)
        Slot of each place.
    """

    sequence: int
    slots: Ints
    members: Features
    order: Ints


@dataclass(frozen=True)
class SumsPlan(Message):
    """A request for weighted sums of kernel values at some members, which the solver waits for.

    Attributes
    ----------
    members : Features or None
        The feature store, by slot; None if it is sent separately.
    generation : int
        Of the store.
    order : ndarray of int64, shape (m,)
        Slots of the members at which the sums are needed.
    support : ndarray of int64, shape (U,)
        Slots of the members that are summed over.
    amounts : ndarray of float64, shape (P, U)
    """

    members: Features | None
    generation: int
    order: Ints
    support: Ints
    amounts: NDArray[np.float64]


class Targets(NamedTuple):
    """The labels and bounds of m examples in P problems.

    Attributes
    ----------
    codes : ndarray of int64, shape (m,)
        Class number of each example.
    sign, bound : ndarray of float64, shape (P, m)
        Label ±1 and C_i in each problem; C_i is 0 if the example is not part of the problem.
    """

    codes: Ints
    sign: NDArray[np.float64]
    bound: NDArray[np.float64]

    def take(self, chosen: Ints) -> "Targets":
        """Return the labels and bounds of some of the examples."""
        return Targets(self.codes[chosen], self.sign[:, chosen], self.bound[:, chosen])


@dataclass(frozen=True)
class CandidateBatch(Message):
    """The result of a ScorePlan: m examples, K of which are likely enough to enter S that their rows are included.

    Attributes
    ----------
    sequence : int
    examples : ndarray of int64, shape (m,)
    codes, sign, bound : ndarray of shape (m,), (P, m) and (P, m)
        See `Targets`.
    margins : ndarray of float64, shape (P, m)
        Σ α K, without the bias, at the plan's version.
    row_of : ndarray of int64, shape (m,)
        Row of each example in `rows`, -1 for those whose rows were left out (see `drift.GrowthEstimate`).
    features : Features
        Of the K candidates.
    rows : ndarray of shape (K, V)
        Kernel rows.
    scored : ndarray of float64, shape (P, K)
        Violation of each candidate at the plan's version.
    evaluations : int
        Number of kernel values computed.
    sampled : int
        Number of candidates that these examples were selected from; 0 without a selection.
    """

    sequence: int
    examples: Ints
    codes: Ints
    sign: NDArray[np.float64]
    bound: NDArray[np.float64]
    margins: NDArray[np.float64]
    row_of: Ints
    features: Features
    rows: Floats
    scored: NDArray[np.float64]
    evaluations: int
    sampled: int = 0


@dataclass(frozen=True)
class MemberRows(Message):
    """The result of a RowsPlan.

    Attributes
    ----------
    sequence : int
    rows : ndarray of shape (u, V)
    """

    sequence: int
    rows: Floats


@dataclass(frozen=True)
class Progress:
    """The state of a run, as reported to callbacks and in the history.

    Attributes
    ----------
    phase : {"seeding", "online", "surveying", "finishing", "checking", "done", "intermediate"}
    epoch, seen : int
        Number of epochs begun; number of examples processed.
    members, steps : int
        Size of S; number of steps (direction searches).
    delta, dual : ndarray of float64, shape (P,)
        The measure of convergence named by `measure`; the dual objective, from the working gradients.
    evaluations : int
        Number of kernel values computed.
    measure : {"delta", "gap"}
        "delta": the uncertainty of the bias (paper 1, equation 10), or the largest violation of a multi-class machine;
        "gap": the duality gap of the members.
    more : dict of str to ndarray of float64, shape (P,)
        Further measures that only some solvers have.
    """

    phase: str
    epoch: int
    seen: int
    members: int
    steps: int
    delta: NDArray[np.float64]
    dual: NDArray[np.float64]
    evaluations: int
    measure: str = "delta"
    more: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the entry of `history_`: numbers for one problem, lists for several."""
        measured = {self.measure: self.delta, "dual": self.dual} | self.more
        alone = len(self.delta) == 1
        return {
            "phase": self.phase,
            "epoch": self.epoch,
            "seen": self.seen,
            "support_vectors": self.members,
            **{name: float(values[0]) if alone else values.tolist() for name, values in measured.items()},
            "steps": self.steps,
            "kernel_evaluations": self.evaluations,
        }


Plan = ScorePlan | RowsPlan
Result = CandidateBatch | MemberRows
