"""The unified framework of multi-class machines: margins, losses and the dual that follows from them (paper 5, section 2.2.7).

For a pattern of class y and each class c, a machine has a margin μ_c = Σ_m ν_{y,c,m} f_m, which should be at least 1. The loss is
the sum, or the largest, of the differences to 1. The dual (paper 5, equation 5.4, where "ξ ≥ 0" is a misprint for α ≥ 0) is

    maximise Σ α_{i,c} - ½ ΣΣ M_{y_i,c,y_j,e} k(x_i, x_j) α_{i,c} α_{j,e}

over 0 ≤ α_{i,c} ≤ C_i, or over α_{i,c} ≥ 0, Σ_c α_{i,c} ≤ C_i. A *variable* is a pair (pattern, class). ν and M are computed
from a few comparisons instead of being stored as tables.
"""

from typing import NamedTuple

import numpy as np

from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Ints, Values
from dasksvm.solver.registry import look_up


class Machine(NamedTuple):
    """A multi-class machine.

    Attributes
    ----------
    relative : bool
        Whether margins are ½(f_y - f_c) (definition 4), instead of +f_y for c = y and -f_c for other classes (definition 5).
    shared : bool
        Whether a pattern has one slack for all its variables (definition 7, max-loss: Σ_c α_c ≤ C_i), instead of one for each
        (definition 6, sum-loss: α_c ≤ C_i).
    total : bool
        Whether the variable c = y exists too.
    zero_sum : bool
        Whether Σ_m f_m = 0 is a constraint (equation 2.13); with relative margins it holds without one.
    classes : int
        d, the number of classes.
    """

    relative: bool
    shared: bool
    total: bool
    zero_sum: bool
    classes: int


MACHINES = {
    "ww": Machine(relative=True, shared=False, total=False, zero_sum=False, classes=0),
    "cs": Machine(relative=True, shared=True, total=False, zero_sum=False, classes=0),
    "llw": Machine(relative=False, shared=False, total=False, zero_sum=True, classes=0),
}


def machine(name: str, classes: int) -> Machine:
    """Return the machine with a name, for a number of classes."""
    return look_up(MACHINES, "machine", name)._replace(classes=classes)


@njit()
def nu(machine: Machine, y: int, c: int, m: int) -> float:  # pragma: no cover
    """Return ν_{y,c,m} before the projection of `zero_sum` (paper 5, table 2.1, but with the ½ of definition 4)."""
    if machine.relative:
        return 0.5 * ((y == m) - (c == m))
    sign = 1.0 if c == y else -1.0
    return sign if c == m else 0.0


@njit()
def coupling(machine: Machine, y: int, p: int, z: int, q: int) -> float:  # pragma: no cover
    """Return M_{y,p,z,q} = Σ_m ν_{y,p,m} ν_{z,q,m}, minus (1/d) Σν Σν for `zero_sum` machines (paper 5, section 5.1)."""
    if machine.relative:
        return 0.25 * ((y == z) - (y == q) - (p == z) + (p == q))
    sign = 1.0 if (p == y) == (q == z) else -1.0
    share = 1.0 / machine.classes if machine.zero_sum else 0.0
    return sign * ((p == q) - share)


def coefficients(machine: Machine, alpha: Values, labels: Ints) -> Values:
    """Compute the coefficients β of the decision functions f_m(x) = Σ_i β_{m,i} k(x_i, x), for α of shape (d, n)."""
    own = (labels, np.arange(len(labels)))
    if machine.relative:
        beta = -0.5 * alpha
        beta[own] += 0.5 * alpha.sum(axis=0)
        return beta
    beta = -alpha
    beta[own] = alpha[own]
    return beta - beta.mean(axis=0) if machine.zero_sum else beta


def gradients(machine: Machine, margins: Values, labels: Ints) -> Values:
    """Compute G = 1 - Σ_m ν_{y,c,m} f_m for decision values f of shape (d, n); -inf for variables that do not exist."""
    own = (labels, np.arange(len(labels)))
    g: Values = 1.0 - 0.5 * (margins[own] - margins) if machine.relative else 1.0 + margins
    if not machine.total:
        g[own] = -np.inf
    elif not machine.relative:
        g[own] = 1.0 - margins[own]
    return g


def dual(alpha: Values, g: Values) -> float:
    """Compute D(α) (paper 5, equation 5.4) from α and its gradient alone: ½ Σ α (1 + g)."""
    held = alpha > 0.0
    return 0.5 * float(alpha[held] @ (1.0 + g[held]))


def losses(machine: Machine, margins: Values, labels: Ints) -> Values:
    """Compute the loss of each example for decision values f of shape (d, n) (paper 5, definitions 6 and 7).

    The primal is ½ Σ β f + Σ C_i loss_i, and the duality gap Σ C_i loss_i - Σ α g.
    """
    shortfall = np.maximum(gradients(machine, margins, labels), 0.0)
    total: Values = shortfall.max(axis=0) if machine.shared else shortfall.sum(axis=0)
    return total
