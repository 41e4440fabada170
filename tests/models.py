"""Random models of every kind, made without training."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dasksvm import KernelModel
from dasksvm.data.statistics import Scaling
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.kernels.registry import KERNELS

# Kernels that the formats of LIBSVM and scikit-learn have.
SHARED = [name for name, formula in KERNELS.items() if formula.libsvm and formula.sklearn]
TYPES = (np.float32, np.float64, np.uint8)


def some_model(
    seed: int,
    *,
    sparse: bool | None = None,
    scaled: bool | None = None,
    classes: int | None = None,
    pairwise: bool | None = None,
    text: bool | None = None,
) -> tuple[KernelModel, NDArray[np.float64]]:
    """Make a model, and rows of shape (40, d) for it; what is not said is drawn.

    Values are small enough that sums of float64 have errors far below 1e-9.
    """
    rng = np.random.default_rng(seed)

    def drawn(said: bool | None) -> bool:
        value = bool(rng.random() < 0.5)
        return value if said is None else said

    name = SHARED[rng.integers(len(SHARED))]
    kernel = Kernel(name, float(rng.uniform(0.05, 0.5)), float(rng.normal()), int(rng.integers(1, 4)))
    count, width = int(rng.integers(2, 30)), int(rng.integers(2, 9))
    rows = rng.normal(size=(count + 40, width)) * (rng.random((count + 40, width)) < 0.7)
    dtype = TYPES[rng.integers(len(TYPES))]
    if dtype == np.uint8:
        rows = np.abs(np.round(3 * rows))
    vectors: Any = rows[:count].astype(dtype)
    drawn_classes = int(rng.integers(2, 5))
    many = drawn_classes if classes is None else classes
    pairs = drawn(pairwise) and many > 2
    labels = np.sort(rng.choice(np.arange(-9, 10), many, replace=False))
    first, second = np.triu_indices(many, 1)
    problems = 1 if many == 2 else len(first) if pairs else many
    alpha = rng.normal(size=(problems, count))
    if pairs and rng.random() < 0.5:  # as training leaves them
        of = rng.integers(many, size=count)
        alpha = np.abs(alpha) * ((of == first[:, None]) * 1.0 - (of == second[:, None]))
    named: NDArray[Any] = np.sort(np.array([f"ß{label}" for label in labels])) if drawn(text) else labels
    by_values = drawn(sparse)
    scaling = None
    if drawn(scaled):
        offset = np.zeros(width) if by_values or rng.random() < 0.3 else rng.normal(size=width)
        factor = np.full(width, 1.7) if rng.random() < 0.5 else rng.uniform(0.5, 2.0, width)
        scaling = Scaling(offset, factor)
    vectors = sp.csr_matrix(vectors) if by_values else vectors
    return KernelModel(kernel, vectors, alpha, rng.normal(size=problems), named, scaling, pairs), rows[count:]
