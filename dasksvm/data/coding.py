"""Classes as two-class problems: who is on which side of each, and how large its box is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.messages import Targets


@dataclass(frozen=True)
class Coding:
    """P problems of two sides over c classes.

    Attributes
    ----------
    signs : ndarray of float64, shape (P, c)
        1 and -1 for the classes of the two sides, 0 for a class that takes no part.
    bounds : ndarray of float64, shape (P, c)
        C of the examples of each class; their weights multiply it.
    """

    signs: NDArray[np.float64]
    bounds: NDArray[np.float64]

    @classmethod
    def of(cls, boxes: NDArray[np.float64], *, pairwise: bool = False, factors: Sequence[float] = (1.0,)) -> "Coding":
        """Set every class against the rest, or, with `pairwise`, against each other one; of two classes, the second is positive.

        Parameters
        ----------
        boxes : ndarray of float64, shape (c,)
            C of each class.
        pairwise : bool
        factors : sequence of float
            Each makes problems of its own, whose boxes are larger by so much.
        """
        count = len(boxes)
        signs = 2.0 * np.eye(count) - 1.0
        if count == 2:
            signs = signs[1:]
        elif pairwise:
            first, second = np.triu_indices(count, 1)
            signs = np.eye(count)[first] - np.eye(count)[second]
        signs = np.tile(signs, (len(factors), 1))
        scale = np.repeat(np.asarray(factors, np.float64), len(signs) // len(factors))
        return cls(signs, np.abs(signs) * boxes * scale[:, None])

    @property
    def problems(self) -> int:
        """P."""
        return len(self.signs)

    def targets(self, codes: Ints, weights: NDArray[np.float64]) -> Targets:
        """Say what examples of some classes should become in each problem."""
        return Targets(codes, self.signs[:, codes], self.bounds[:, codes] * weights)
