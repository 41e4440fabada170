"""Train with workers that are separate SLURM jobs, submitted by dask-jobqueue from a login node or a notebook.

    pip install dask-jobqueue
    python deploy/slurm/jobqueue.py DATA.zarr MODEL SNAPSHOTS --compute 8

`SLURMCluster` makes all its jobs alike; here these are the compute workers, and the job of the coordinator is added to them. Use
job.sh if the training must continue when the session that started it ends.
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
    """Start a scheduler in this process, and submit the jobs of the coordinator and of the compute workers.

    Parameters
    ----------
    compute : int
        Number of compute workers. Each is a job with one CPU.
    memory, coordinator_memory : str
        Memory of a compute worker, and of the coordinator's job.
    walltime : str
        Time limit of each job. Compute workers may come and go, but a run ends with the coordinator's job unless another
        worker can replace it.
    interface : str, optional
        The network interface that login node and compute nodes share.
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
    # The jobs of the workers may wait in the queue for a while.
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
