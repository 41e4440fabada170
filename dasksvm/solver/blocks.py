"""Decomposition in blocks."""

from dasksvm.solver.exact import BatchLearner


class BlockLearner(BatchLearner):
    """The solver in blocks."""
