"""Decomposition in pairs (paper 4; paper 1, section 3.1)."""

from dasksvm.solver.exact import BatchLearner


class PairLearner(BatchLearner):
    """The two-variable solver."""
