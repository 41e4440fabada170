"""Training on a Dask cluster: driver, coordinator, workers and jobs. The only package that imports distributed.

What is computed, and in which order, is the learner's; this package decides where, and survives what is lost.
"""

from dasksvm.runtime.client import open_client, use_client
from dasksvm.runtime.cluster import SchedulerLost, WorkersLost, local_cluster, workers_of
from dasksvm.runtime.coordinator_client import CoordinatorLost
from dasksvm.runtime.driver import run
from dasksvm.runtime.jobs.driver import JobCancelled
from dasksvm.runtime.jobs.job import Job, JobLost, JobStatus, UnknownJob, check_name, launch

__all__ = [
    "CoordinatorLost",
    "Job",
    "JobCancelled",
    "JobLost",
    "JobStatus",
    "SchedulerLost",
    "UnknownJob",
    "WorkersLost",
    "check_name",
    "launch",
    "local_cluster",
    "open_client",
    "run",
    "use_client",
    "workers_of",
]
