"""Whether kernel values are kept, from what they cost to compute and what they cost to keep."""

from dasksvm.solver.kernels.features import Features
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.kernels.uniform import shape_of_tiles

# Values that take longer than this to compute are kept. The first use of memory for a value takes about 5 ns, and a kept row is
# used 3 to 10 times.
EXPENSIVE = 4e-9


def can_keep(kernel: Kernel, features: Features) -> bool:
    """Decide whether kernel values may be kept, as far as the budget allows.

    They may if it pays, and if values that are computed again have the same bits. The budget has no influence: it decides which
    values are kept, and this function in which tiles values are computed.
    """
    return kernel.seconds(features) > EXPENSIVE and shape_of_tiles(kernel, features).uniform
