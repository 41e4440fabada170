"""The unified framework of multi-class machines as structure: which margins, which losses, and what follows (paper 5, 2.2.7).

A machine measures μ_c = Σ_m ν_{y,c,m} f_m of a pattern of class y for each class c, all of which should be at least 1, and
takes the sum or the largest of what they lack. Its dual (paper 5, equation 5.4; α ≥ 0 is what is meant by ξ ≥ 0) is

    maximise Σ α_{i,c} - ½ ΣΣ M_{y_i,c,y_j,e} k(x_i, x_j) α_{i,c} α_{j,e}

over 0 ≤ α_{i,c} ≤ C_i, or over α_{i,c} ≥ 0, Σ_c α_{i,c} ≤ C_i. A *variable* is a pair (pattern, class). Nothing is tabulated:
ν and M are a few comparisons.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.registry import look_up

Values = NDArray[np.float64]


class Machine(NamedTuple):
    """A multi-class machine.

    Attributes
    ----------
    relative : bool
        Margins ½(f_y - f_c) (definition 4), and not +f_y for c = y and -f_c for the others (definition 5).
    shared : bool
        One slack for the whole pattern (definition 7, max-loss: Σ_c α_c ≤ C_i), and not one for each variable (definition 6,
        sum-loss: α_c ≤ C_i).
    total : bool
        The variable c = y exists too.
    zero_sum : bool
        Σ_m f_m = 0 is demanded (equation 2.13); relative margins have it anyway.
    classes : int
        d.
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
    """Give a named machine for so many classes."""
    return look_up(MACHINES, "machine", name)._replace(classes=classes)


@njit()
def nu(machine: Any, y: int, c: int, m: int) -> float:  # pragma: no cover
    """ν_{y,c,m} (paper 5, table 2.1, with the ½ of definition 4), before the projection of `zero_sum`."""
    if machine.relative:
        return 0.5 * ((y == m) - (c == m))
    sign = 1.0 if c == y else -1.0
    return sign if c == m else 0.0


@njit()
def coupling(machine: Any, y: int, p: int, z: int, q: int) -> float:  # pragma: no cover
    """M_{y,p,z,q} = Σ_m ν_{y,p,m} ν_{z,q,m}, minus (1/d) Σν Σν where `zero_sum` (paper 5, section 5.1)."""
    if machine.relative:
        return 0.25 * ((y == z) - (y == q) - (p == z) + (p == q))
    sign = 1.0 if (p == y) == (q == z) else -1.0
    share = 1.0 / machine.classes if machine.zero_sum else 0.0
    return sign * ((p == q) - share)


def coefficients(machine: Machine, alpha: Values, labels: Ints) -> Values:
    """Coefficients β of the decision functions f_m(x) = Σ_i β_{m,i} k(x_i, x), for α of shape (d, n)."""
    own = (labels, np.arange(len(labels)))
    if machine.relative:
        beta = -0.5 * alpha
        beta[own] += 0.5 * alpha.sum(axis=0)
        return beta
    beta = -alpha
    beta[own] = alpha[own]
    return beta - beta.mean(axis=0) if machine.zero_sum else beta


def gradients(machine: Machine, margins: Values, labels: Ints) -> Values:
    """G = 1 - Σ_m ν_{y,c,m} f_m for decision values f of shape (d, n); -inf where there is no such variable."""
    own = (labels, np.arange(len(labels)))
    g: Values = 1.0 - 0.5 * (margins[own] - margins) if machine.relative else 1.0 + margins
    if not machine.total:
        g[own] = -np.inf
    elif not machine.relative:
        g[own] = 1.0 - margins[own]
    return g


def dual(alpha: Values, g: Values) -> float:
    """D(α), from α and its gradient alone: ½ Σ α (1 + g)."""
    held = alpha > 0.0
    return 0.5 * float(alpha[held] @ (1.0 + g[held]))


def losses(machine: Machine, margins: Values, labels: Ints) -> Values:
    """Loss of each example at decision values f of shape (d, n) (definitions 6 and 7).

    The primal is ½ Σ β f + Σ C_i loss_i, and the duality gap Σ C_i loss_i - Σ α g.
    """
    lacking = np.maximum(gradients(machine, margins, labels), 0.0)
    total: Values = lacking.max(axis=0) if machine.shared else lacking.sum(axis=0)
    return total
