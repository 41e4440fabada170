"""exp of the non-positive exponents of a tile, in place."""

import numpy as np

from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Floats


def exponential(out: Floats, left: int, right: int) -> None:
    """Replace out[:, left:right], which must not be above 0, by its exponential."""
    if out.dtype == np.float32:
        _exp(out, left, right)
    elif out.dtype == np.float64:
        np.exp(out[:, left:right], out=out[:, left:right])
    else:
        raise ValueError(f"kernel values must be float32 or float64. Got {out.dtype} instead.")


@njit(fastmath={"contract"})
def _exp(out: Floats, left: int, right: int) -> None:  # pragma: no cover
    """Compute exp of non-positive float32 numbers in place: 2^k · p(r) with |r| ≤ 1/2, relative error below 1e-7.

    Below e^-87 the result is about 1e-38, the smallest normal number of float32.
    """
    log2e = np.float32(1.4426950408889634)
    for r in range(out.shape[0]):
        line = out[r][left:right]
        for c in range(len(line)):
            z = line[c] * log2e
            z = z if z > np.float32(-126.0) else np.float32(-126.0)
            k = np.int32(z - np.float32(0.5))
            x = z - np.float32(k)
            p = np.float32(1.535336188319500e-4)
            p = p * x + np.float32(1.339887440266574e-3)
            p = p * x + np.float32(9.618437357674640e-3)
            p = p * x + np.float32(5.550332471162809e-2)
            p = p * x + np.float32(2.402264791363012e-1)
            p = p * x + np.float32(6.931472028550421e-1)
            p = p * x + np.float32(1.0)
            line[c] = p * np.int32((k + np.int32(127)) << np.int32(23)).view(np.float32)
