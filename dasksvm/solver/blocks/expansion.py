"""The expansion of the block engine: members without kernel rows in the working arrays, and the kernel values of rounds."""

from typing import Self

from dasksvm.solver.blocks.kernel_values import KernelValues
from dasksvm.solver.blocks.survey import Survey
from dasksvm.solver.decomposition.intake import RowlessExpansion
from dasksvm.solver.kernels.features import Flags
from dasksvm.solver.kernels.kernel import Kernel

# A copy has the budget divided by this: both need memory at the same time, and the budget changes no results.
COPY_PART = 4


class BlockExpansion(RowlessExpansion):
    """The members of S, and the kernel values that are kept of them.

    Parameters
    ----------
    kernel : Kernel
    problems : int
    budget : int
        Bytes of the kernel values that are kept.
    """

    STATE = (*RowlessExpansion.STATE, "survey")

    def __init__(self, kernel: Kernel, problems: int, budget: int) -> None:
        super().__init__(kernel, problems, 0)
        self.survey = Survey(problems, 0)
        self.kernel_values = KernelValues(kernel, budget)

    def _places_with_rows(self) -> int:
        """Return 0: there are no rows, and the table of a row cache would take four bytes for each 1,024 pairs of members."""
        return 0

    def _held_places(self) -> Flags:
        return self.survey.held_places(self.places)

    def with_own_cache(self) -> Self:
        """Return an expansion that shares the members and keeps fewer values, its own; its members must not be changed."""
        other = super().with_own_cache()
        other.kernel_values = KernelValues(self.kernel, self.kernel_values.budget // COPY_PART)
        return other

    def release_rows(self) -> None:
        """Drop all kernel values that are kept; they are computed again when they are used."""
        super().release_rows()
        self.kernel_values = KernelValues(self.kernel, self.kernel_values.budget)
