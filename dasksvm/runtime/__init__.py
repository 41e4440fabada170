"""Training on a Dask cluster: the one package that imports distributed."""

from dasksvm.runtime.cluster import SchedulerLost, local_cluster
from dasksvm.runtime.train import CoordinatorLost, connected, opened, run

__all__ = ["CoordinatorLost", "SchedulerLost", "connected", "local_cluster", "opened", "run"]
