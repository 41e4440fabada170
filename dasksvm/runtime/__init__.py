"""Training on a Dask cluster. No other package imports distributed."""

from dasksvm.runtime.cluster import SchedulerLost, WorkersLost, local_cluster, workers_of
from dasksvm.runtime.driver import JobCancelled
from dasksvm.runtime.job import Job, JobLost, JobStatus, UnknownJob, check_name, jobs, launch
from dasksvm.runtime.line import CoordinatorLost
from dasksvm.runtime.train import connected, opened, run

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
    "connected",
    "jobs",
    "launch",
    "local_cluster",
    "opened",
    "run",
    "workers_of",
]
