"""scikit-learn estimators, one file a family."""

from dasksvm.estimators.lasvm import LaSVC

__all__ = ["LaSVC"]
