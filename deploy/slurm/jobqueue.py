"""A training whose workers are SLURM jobs of their own, submitted by dask-jobqueue from a login node or a notebook.

    pip install dask-jobqueue
    python deploy/slurm/jobqueue.py DATA.zarr MODEL SNAPSHOTS --compute 8

`SLURMCluster` makes all jobs alike, and here it makes those for tiles; the coordinator's is put beside them. Use job.sh where the
training must not end with the session that started it.
"""

import argparse

import dask.config
from dask_jobqueue import SLURMCluster
from distributed import Client

from dasksvm import LaSVC, train

PROLOGUE = [
    "export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1",
    "export NUMPY_MADVISE_HUGEPAGE=0 MALLOC_TRIM_THRESHOLD_=134217728 MALLOC_MMAP_THRESHOLD_=33554432",
    "export DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED=false",
]


def started(compute: int, memory: str, coordinator_memory: str, walltime: str, interface: str | None) -> SLURMCluster:
    """Start a scheduler here, and submit a job for the coordinator and others for tiles.

    Parameters
    ----------
    compute : int
        Jobs for tiles, of one CPU each.
    memory, coordinator_memory : str
        Of a job for tiles, and of the coordinator's.
    walltime : str
        Of each job. Jobs for tiles may come and go; the run ends with the coordinator's if no other takes its place.
    interface : str, optional
        The network that login node and compute nodes share.
    """
    cluster = SLURMCluster(
        cores=1,
        processes=1,
        memory=memory,
        walltime=walltime,
        interface=interface,
        job_script_prologue=PROLOGUE,
        worker_extra_args=["--resources", "compute=1"],
    )
    options = {"cores": 2, "memory": coordinator_memory, "worker_extra_args": ["--resources", "coordinator=1"]}
    cluster.worker_spec["coordinator"] = cluster.new_spec | {"options": cluster.new_spec["options"] | options}
    cluster.scale(jobs=compute + 1)
    return cluster


def main() -> None:
    """Train from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("model")
    parser.add_argument("snapshots")
    parser.add_argument("--compute", type=int, default=4)
    parser.add_argument("--memory", default="4GiB")
    parser.add_argument("--coordinator-memory", default="8GiB")
    parser.add_argument("--walltime", default="08:00:00")
    parser.add_argument("--interface")
    options = parser.parse_args()
    # Jobs may wait in the queue before they become workers.
    dask.config.set({"dasksvm.worker-timeout": "1h"})
    with (
        started(
            options.compute, options.memory, options.coordinator_memory, options.walltime, options.interface
        ) as cluster,
        Client(cluster, direct_to_workers=True) as client,
    ):
        solver = LaSVC(C=10, random_state=0, verbose=1)
        run = train(options.data, solver, client=client, checkpoint=options.snapshots, resume=True)
        run.model.save(options.model)


if __name__ == "__main__":
    main()
