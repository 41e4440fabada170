"""The batch solvers: decomposition of the whole dual problem (paper 4; paper 1, section 3.1).

The working set is a pair whose kernel rows are cached (`pairs`), or a block of examples whose rows come as a tile (`blocks`).
Which pair comes next within it, and when that ends, `PairRules` and `BlockRules` say.
"""

from dataclasses import dataclass
from typing import NamedTuple

from dasksvm.solver.engine.settings import Settings

SELECTIONS = ("mvp", "second-order", "mg", "hmg")
STOPS = ("kkt", "gain")
# η of HMG's corner rule, as a share of C_i (paper 4, section 2.4).
CORNER = 1e-8


class PairRules(NamedTuple):
    """What the user set for pairs.

    Attributes
    ----------
    selection : {"mvp", "second-order", "mg", "hmg"}
        How a pair is chosen: the most violating one; the largest gain with the largest gradient, whatever the box; the largest
        gain with one of the pair before; the same, but the most violating pair where that pair ended in a corner.
    stop : {"kkt", "gain"}
        Where δ ≤ τ, or, of pairs chosen by their gain, where the step is below τ.
    shrinking : bool
        Whether examples at a bound that seem to stay there are left out for a while.
    limit : int
        Steps at most.
    rows : int
        Rows that "mg" and "hmg" search: those of the pair before (2), of one of it in turn (1), or all that are cached (0). No
        other number has a meaning.
    """

    selection: str
    stop: str
    shrinking: bool
    limit: int
    rows: int


class BlockRules(NamedTuple):
    """What the user set for blocks.

    Attributes
    ----------
    selection : {"mvp", "second-order", "mg", "hmg"}
        How a pair is chosen within a block; see `PairRules`. "mg" and "hmg" always search two rows.
    size : int
        Of the working set; 0 leaves it to the solver.
    shrinking : bool
    limit : int
        As in `PairRules`.
    """

    selection: str
    size: int
    shrinking: bool
    limit: int


@dataclass(frozen=True, kw_only=True)
class DecompositionSettings(Settings):
    """What defines a run of a batch solver.

    Attributes
    ----------
    rules : PairRules or BlockRules
    """

    rules: PairRules | BlockRules


@dataclass(frozen=True, kw_only=True)
class PairSettings(DecompositionSettings):
    """What defines a run in pairs."""

    rules: PairRules


@dataclass(frozen=True, kw_only=True)
class BlockSettings(DecompositionSettings):
    """What defines a run in blocks."""

    rules: BlockRules
