"""Whether kernel values are kept: what they cost to compute, and what they cost to keep."""

from dasksvm.solver.kernels.features import Features, SparseFeatures
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.kernels.uniform import shape_of_tiles

# Nanoseconds that a multiply-add of dense rows, one of sparse rows, and the rest of a kernel value take on one thread.
DENSE, SPARSE, REST = 0.02, 0.1, 0.4
# Values that take longer than this to compute are kept. The first use of memory for a value takes about 5 ns, and a kept row is
# used 3 to 10 times.
DEAR = 4.0


def cost_of_value(kernel: Kernel, features: Features) -> float:
    """Estimate how long a kernel value takes, in nanoseconds of one thread."""
    if isinstance(features, SparseFeatures):
        return REST + SPARSE * len(features.data) / max(len(features), 1)
    return REST + DENSE * kernel.formula.cost * features.width


def can_keep(kernel: Kernel, features: Features) -> bool:
    """Decide whether kernel values may be kept, as far as the budget allows.

    They may if it pays, and if values that are computed again have the same bits. The budget has no influence: it decides which
    values are kept, and this function in which tiles values are computed.
    """
    return cost_of_value(kernel, features) > DEAR and shape_of_tiles(kernel, features).uniform
