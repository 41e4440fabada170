"""The scikit-learn estimators, one module each, with `train` and `submit`.

Modules with a leading underscore are what the estimators share. Steps of a solver belong to `dasksvm.solver`.
"""

from dasksvm.estimators.lasvc import LaSVC

__all__ = ["LaSVC"]
