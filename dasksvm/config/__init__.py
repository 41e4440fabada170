"""Settings, and what keeps threads and BLAS in order.

Defaults are in `dasksvm.yaml`. Everything may import this package; it imports nothing above the solver.
"""

from dasksvm.config.settings import bytes_of, get, memory, seconds_of, threads

__all__ = ["bytes_of", "get", "memory", "seconds_of", "threads"]
