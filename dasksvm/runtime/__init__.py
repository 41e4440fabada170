"""Training on a Dask cluster: the one package that imports distributed."""

from dasksvm.runtime.cluster import local_cluster
from dasksvm.runtime.train import CoordinatorLost, connected, opened, run
from dasksvm.runtime.wire import Timings

__all__ = ["CoordinatorLost", "Timings", "connected", "local_cluster", "opened", "run"]
