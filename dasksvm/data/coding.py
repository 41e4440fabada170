"""Coding of several classes as two-class problems: the sign and the bound C of each class in each problem."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.messages import Targets


@dataclass(frozen=True)
class Coding:
    """P two-class problems over c classes.

    Attributes
    ----------
    signs : ndarray of float64, shape (P, c)
        1 or -1 for the side that a class is on, 0 for a class that a problem leaves out.
    bounds : ndarray of float64, shape (P, c)
        C of the examples of each class, to be multiplied by their weights.
    """

    signs: NDArray[np.float64]
    bounds: NDArray[np.float64]

    @classmethod
    def of(cls, boxes: NDArray[np.float64], *, pairwise: bool = False, factors: Sequence[float] = (1.0,)) -> "Coding":
        """Make the problems of each class against the rest, or, with `pairwise`, of each pair of classes.

        Two classes give a single problem, in which the second class is positive.

        Parameters
        ----------
        boxes : ndarray of float64, shape (c,)
            C of each class.
        pairwise : bool
        factors : sequence of float
            Each factor gives a copy of all problems in which C is multiplied by it.
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
        """The number of problems P."""
        return len(self.signs)

    def targets(self, codes: Ints, weights: NDArray[np.float64]) -> Targets:
        """Return the labels and bounds of examples of some classes in each problem."""
        return Targets(codes, self.signs[:, codes], self.bounds[:, codes] * weights)
