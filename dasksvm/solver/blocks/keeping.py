"""Whether kernel values are kept, from what they cost to compute and what they cost to keep."""

from dasksvm.solver.kernels.features import Features
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.kernels.uniform import shape_of_tiles

# Values that take longer than this to compute are kept. To write one takes 2 to 5 ns, because it is the first use of memory, and
# to read it again up to 1 ns. On images with 50 to 200 features, keeping them pays from 70 features with ten classes, from 110
# with wrong labels, and from 200 with two classes that are easy to separate.
EXPENSIVE = 3e-9


def can_keep(kernel: Kernel, features: Features) -> bool:
    """Decide whether kernel values may be kept, as far as the budget allows.

    They may if it pays, and if values that are computed again have the same bits. The budget has no influence: it decides which
    values are kept, and this function in which tiles values are computed.
    """
    return kernel.seconds(features) > EXPENSIVE and shape_of_tiles(kernel, features).uniform
