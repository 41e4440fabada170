"""Training on a Dask cluster: the one package that imports distributed."""

from dasksvm.runtime.cluster import local_cluster
from dasksvm.runtime.train import CoordinatorLost, connected, opened, run

__all__ = ["CoordinatorLost", "connected", "local_cluster", "opened", "run"]
