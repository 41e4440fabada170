"""The solvers: NumPy and numba only. No Dask, no scikit-learn, no files, no clock.

A learner says what it wants computed (a plan), takes the results in order, and owns the state. Who computes them, and where,
is not its business. `messages` are what goes back and forth.
"""
