"""The scikit-learn estimators, one module for each family of solvers."""

from dasksvm.estimators.lasvm import LaSVC

__all__ = ["LaSVC"]
