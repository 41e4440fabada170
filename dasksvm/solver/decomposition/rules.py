"""The parameters of the batch solvers (paper 4; paper 1, section 3.1).

The working set is either a pair of members whose kernel rows are cached (`pair_solver`), or a block of examples whose kernel
values are computed as one tile (`blocks.exact_learner`).
"""

from dataclasses import dataclass
from typing import NamedTuple

from dasksvm.solver.engine.settings import Settings

SELECTIONS = ("mvp", "second-order", "mg", "hmg")
STOPS = ("kkt", "gain")
# η of HMG's corner rule, as a share of C_i (paper 4, section 2.4).
CORNER = 1e-8


class PairRules(NamedTuple):
    """The parameters that select the pairs and stop the solver.

    Attributes
    ----------
    selection : {"mvp", "second-order", "mg", "hmg"}
        How a pair is chosen. "mvp": the most violating pair. "second-order": the member with the largest gradient, and the
        partner with the largest gain, ignoring the box. "mg": the pair with the largest gain among those that include a member
        of the previous pair (paper 4, section 2.3). "hmg": like "mg", but the most violating pair if both coefficients of the
        previous pair are close to a bound (paper 4, section 2.4).
    stop : {"kkt", "gain"}
        Stop when δ ≤ τ, or, for pairs chosen by their gain, when the step is shorter than τ.
    shrinking : bool
        Whether examples that are likely to stay at a bound are left out for a while.
    limit : int
        Largest number of steps.
    rows : int
        Kernel rows that "mg" and "hmg" search: both of the previous pair (2), the newer one of them (1), or all cached
        rows (0).
    """

    selection: str
    stop: str
    shrinking: bool
    limit: int
    rows: int


class BlockRules(NamedTuple):
    """The parameters of decomposition in blocks.

    Attributes
    ----------
    selection : {"mvp", "second-order", "mg", "hmg"}
        How a pair is chosen within a block; see `PairRules`. "mg" and "hmg" always search two rows.
    shrinking : bool
    limit : int
        As in `PairRules`.
    """

    selection: str
    shrinking: bool
    limit: int


@dataclass(frozen=True, kw_only=True)
class DecompositionSettings(Settings):
    """The settings that the batch solvers share.

    Attributes
    ----------
    rules : PairRules or BlockRules
    """

    rules: PairRules | BlockRules


@dataclass(frozen=True, kw_only=True)
class PairSettings(DecompositionSettings):
    """The settings of decomposition in pairs."""

    rules: PairRules
