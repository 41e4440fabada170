"""What crosses the wall between the learner and whoever executes its plans. Every array in a message is read-only."""

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.kernels.features import Features, Floats, Ints, frozen
from dasksvm.solver.multiclass.structure import Machine


class Message:
    """A frozen dataclass whose arrays are made read-only when it is made."""

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if isinstance(value, np.ndarray):
                object.__setattr__(self, each.name, frozen(value))


@dataclass(frozen=True)
class View(Message):
    """The published state of S at a version: P problems, V places.

    Attributes
    ----------
    version : int
        Batches applied so far.
    generation : int
        Of the feature store: within one, slots are only appended; a negative one is this view's alone.
    members : Features
        The feature store, by slot; None before there is one.
    order : ndarray of int64, shape (V,)
        Slot of each place; a free place shows some slot, with α = 0.
    alpha : ndarray of float64, shape (P, V)
    top, bottom : ndarray of float64, shape (P,)
        Largest gradient that may rise, smallest that may fall; with `band` the ends of the band.
    wants : ndarray of bool, shape (P, 2)
        Whether examples of the negative and the positive side are wanted while the other side is missing.
    slack : ndarray of float64, shape (P,)
        What the drift since this version may add to a violation; inf sends every candidate.
    tau : float
    machine : Machine or None
        The multi-class machine whose α, one row a class, these are; None for two-class problems.
    band : bool
        Whether there is no bias, and an example enters where 1 - y f lies between `bottom` and `top`.
    tile : bool
        Whether the kernel rows of candidates are wanted, and not only their features.
    exact : bool
        Whether margins are wanted in float64, whatever the type of the features; without rows only.
    """

    version: int
    generation: int
    members: Features | None
    order: Ints
    alpha: NDArray[np.float64]
    top: NDArray[np.float64]
    bottom: NDArray[np.float64]
    wants: NDArray[np.bool_]
    slack: NDArray[np.float64]
    tau: float
    machine: Machine | None = None
    band: bool = False
    tile: bool = True
    exact: bool = False


@dataclass(frozen=True)
class Choice:
    """Not all examples of a plan are wanted, but the best of each of some groups of them.

    Attributes
    ----------
    criterion : {"gradient", "active", "autoactive"}
    size : int
        Examples of a group; with "autoactive" the most that it can have.
    groups : int
        At most so many.
    """

    criterion: str
    size: int
    groups: int


@dataclass(frozen=True)
class ScorePlan(Message):
    """Wanted: kernel rows of some examples against a version of S.

    Attributes
    ----------
    sequence : int
        Results are taken strictly in this order.
    rows : ndarray of int64, shape (m,)
        Ids of the examples.
    view : View
    choice : Choice or None
        Which of the examples are wanted; None for all of them.
    """

    sequence: int
    rows: Ints
    view: View
    choice: Choice | None = None

    @property
    def wanted(self) -> int:
        """The most examples that the answer can have."""
        return len(self.rows) if self.choice is None else self.choice.groups


@dataclass(frozen=True)
class RowsPlan(Message):
    """Wanted: kernel rows of some members against S.

    Attributes
    ----------
    sequence : int
    slots : ndarray of int64, shape (u,)
        Members whose rows are wanted.
    members : Features
        The feature store, by slot.
    order : ndarray of int64, shape (V,)
        Slot of each place.
    """

    sequence: int
    slots: Ints
    members: Features
    order: Ints


class Targets(NamedTuple):
    """What m examples should become in P problems.

    Attributes
    ----------
    codes : ndarray of int64, shape (m,)
        Number of each example's class.
    sign, bound : ndarray of float64, shape (P, m)
        Label ±1 and C_i in each problem; C_i is 0 where an example takes no part.
    """

    codes: Ints
    sign: NDArray[np.float64]
    bound: NDArray[np.float64]

    def take(self, chosen: Ints) -> "Targets":
        """Give those of some of the examples."""
        return Targets(self.codes[chosen], self.sign[:, chosen], self.bound[:, chosen])


@dataclass(frozen=True)
class CandidateBatch(Message):
    """The answer to a ScorePlan: m examples, K of which may well enter S.

    Attributes
    ----------
    sequence : int
    examples : ndarray of int64, shape (m,)
    codes, sign, bound : ndarray of shape (m,), (P, m) and (P, m)
        See `Targets`.
    margins : ndarray of float64, shape (P, m)
        Σ α K, without the bias, at the plan's version.
    row_of : ndarray of int64, shape (m,)
        Row of each example in `rows`, -1 for those whose rows were dropped (see `Slack`).
    features : Features
        Of the K candidates.
    rows : ndarray of shape (K, V)
        Kernel rows.
    scored : ndarray of float64, shape (P, K)
        How far each candidate violated at the plan's version.
    evaluations : int
        Kernel values computed.
    sampled : int
        Examples of the plan among which these were chosen; 0 where there was no choice.
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
    """The answer to a RowsPlan.

    Attributes
    ----------
    sequence : int
    rows : ndarray of shape (u, V)
    """

    sequence: int
    rows: Floats


@dataclass(frozen=True)
class Progress:
    """What happened since the last one.

    Attributes
    ----------
    phase : {"seeding", "online", "finishing", "checking", "done", "intermediate"}
    epoch, seen : int
        Epochs begun; examples processed.
    members, steps : int
        Size of S; direction searches.
    delta, dual : ndarray of float64, shape (P,)
        What `measure` says; dual objective, from the working gradients.
    evaluations : int
        Kernel values computed.
    measure : {"delta", "gap"}
        The uncertainty of the bias (paper 1, equation 10), or the largest violation of a machine; the gap of the members.
    more : dict of str to ndarray of float64, shape (P,)
        What else an algorithm measures.
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
        """Give the entry of `history_`: scalars for one problem, lists for several."""
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
