"""Compare training from Zarr in this process and on clusters of separate processes; predict a million rows.

`python -m pipelines.cluster train --task mnist8 --workers 0,1,2`, `... train --solver smosvc` and `... predict --task mnist8`
"""

import hashlib
import itertools
import os
import resource
import statistics
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
from distributed import Client

from dasksvm import SMOSVC, Dataset, LaSVC, train
from dasksvm.config.blas import one_thread
from dasksvm.data.chunked import KEPT_CHUNKS
from dasksvm.data.featurize import as_features
from dasksvm.model.kernel_model import CHUNK_ROWS
from dasksvm.runtime import local_cluster, workers_of
from dasksvm.solver.engine.tiles import margins
from pipelines.rows import environment, write
from pipelines.tasks import Task, load


def stored(task: Task, folder: Path) -> tuple[Dataset, dict[str, float]]:
    """Write a task to Zarr, pixels as bytes; return the data set and the parameters in its units."""
    parameters = dict(task.parameters)
    X: Any = task.X
    if task.name == "mnist8":
        X, parameters["gamma"] = np.round(task.X * 255).astype(np.uint8), parameters["gamma"] / 255**2
    path = folder / f"{task.name}-{len(X)}.zarr"
    data = Dataset.open(path) if path.exists() else Dataset.create(path, X, task.y, random_state=0)
    return data, parameters


def digest(model: Any) -> str:
    """Compute a checksum of a model."""
    parts = (model.support_, model.dual_coef_, model.intercept_)
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:16]


def peak() -> float:
    """Return the peak memory of this process so far, in MB; getrusage would include that of its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def resident() -> float:
    """Return the current memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


SOLVERS = {"lasvc": LaSVC, "smosvc": SMOSVC}


def looking(history: list[dict[str, Any]]) -> dict[str, float]:
    """Return seconds and kernel values of the checks of all examples, in which only the workers compute."""
    seconds = values = 0.0
    for before, after in itertools.pairwise(history):
        if before["phase"] == after["phase"] == "checking" and after["seen"] == before["seen"]:
            seconds += after["seconds"] - before["seconds"]
            values += after["kernel_evaluations"] - before["kernel_evaluations"]
    return {"looking_seconds": seconds, "looking_values": values}


def fit(data: Dataset, estimator: LaSVC | SMOSVC, client: Client | None) -> dict[str, Any]:
    """Train once; without a client, in this process."""
    before, start = resident(), time.perf_counter()
    run = train(data, estimator, client=client)
    row: dict[str, Any] = {
        "seconds": time.perf_counter() - start,
        "digest": digest(run.estimator),
        "support_vectors": int(run.estimator.n_support_.sum()),
        "kernel_evaluations": run.estimator.kernel_evaluations_,
        "driver_growth_mb": resident() - before,
    }
    row |= vars(run.timings) | looking(run.history)
    if client is not None:
        row |= {"tasks_per_second": run.timings.tasks / run.timings.seconds}
        names = {address: about["name"] for address, about in workers_of(client).items()}
        row["peak_mb"] = {str(names[address]): value for address, value in client.run(peak).items()}
    return row


@click.group()
def main() -> None:
    """Measure training and prediction on clusters of this machine."""


@main.command("train")
@click.option("--task", default="mnist8", show_default=True)
@click.option("--data", type=click.Path(path_type=Path), default=Path("../shared/data"), show_default=True)
@click.option("--store", type=click.Path(path_type=Path), default=Path("runs/zarr"), show_default=True)
@click.option("--solver", type=click.Choice(list(SOLVERS)), default="lasvc", show_default=True)
@click.option(
    "--workers", default="0,1,2", show_default=True, help="Numbers of compute workers; 0: train in this process."
)
@click.option("--repeats", default=3, show_default=True)
@click.option("--cache-size", type=float, help="Memory for kernel values in MB.  [default: that of the estimator]")
@click.option("--threads", is_flag=True, help="Run workers as threads of this process.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs/cluster.jsonl"), show_default=True)
def train_command(
    task: str,
    data: Path,
    store: Path,
    solver: str,
    workers: str,
    repeats: int,
    cache_size: float | None,
    threads: bool,
    out: Path,
) -> None:
    """Train on a task with each number of workers in turn, after a first run that is not measured."""
    loaded = load(task, data)
    zarr, parameters = stored(loaded, store)
    medians: dict[int, float] = {}
    for count in (int(text) for text in workers.split(",")):
        cache = {} if cache_size is None else {"cache_size": cache_size}
        estimator = SOLVERS[solver](**parameters, **cache, random_state=0)
        about = {
            "task": task,
            "solver": solver,
            "workers": count,
            "processes": not threads,
            "cache_size": cache_size,
            "seed": 0,
        }
        rows = []
        if count == 0:
            rows = [fit(zarr, estimator, None) for _ in range(repeats + 1)][1:]
        else:
            with (
                local_cluster(count, processes=not threads) as cluster,
                Client(cluster, direct_to_workers=True) as client,
            ):
                rows = [fit(zarr, estimator, client) for _ in range(repeats + 1)][1:]
        for row in rows:
            write(out, about | row | environment())
        medians[count] = statistics.median(row["seconds"] for row in rows)
        ratio = medians[count] / next(iter(medians.values()))
        click.echo(f"{task} workers={count}: {medians[count]:.2f} s  {ratio:.2f} of the first")
        for name, value in rows[-1].items():
            click.echo(f"    {name}: {value}")


@main.command("predict")
@click.option("--task", default="mnist8", show_default=True)
@click.option("--data", type=click.Path(path_type=Path), default=Path("../shared/data"), show_default=True)
@click.option("--store", type=click.Path(path_type=Path), default=Path("runs/zarr"), show_default=True)
@click.option("--rows", default=1_000_000, show_default=True)
@click.option("--workers", default="1,2", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs/cluster.jsonl"), show_default=True)
def predict_command(task: str, data: Path, store: Path, rows: int, workers: str, out: Path) -> None:
    """Predict many rows from Zarr, and compare with computing only the kernel values on one core."""
    import dask.array as da

    loaded = load(task, data)
    zarr, parameters = stored(loaded, store)
    path = store / f"{task}-{rows}-rows.zarr"
    if not path.exists():
        X, y = zarr.as_dask()
        times = -(-rows // len(zarr))
        Dataset.create(path, da.concatenate([X] * times)[:rows], da.concatenate([y] * times)[:rows], shuffle=False)
    many = Dataset.open(path)
    model = LaSVC(**parameters, random_state=0).fit(zarr).model_
    bare = bare_seconds(model, many)
    for count in (int(text) for text in workers.split(",")):
        with local_cluster(count) as cluster, Client(cluster, direct_to_workers=True) as client:
            lazy = model.predict(many.as_dask()[0])
            model.predict(many.as_dask()[0][: 4 * many.chunk_rows * count]).compute()
            start = time.perf_counter()
            client.compute(lazy, resources={"compute": 1}).result()
            seconds = time.perf_counter() - start
        share = bare / count / seconds
        row = {
            "measure": "predict",
            "task": task,
            "rows": rows,
            "workers": count,
            "seconds": seconds,
            "bare_seconds": bare,
            "share_of_tiles": share,
            "graph_keys": len(lazy.dask),
            "partitions": lazy.npartitions,
            "support_vectors": model.coefficients.shape[1],
        }
        write(out, row | environment())
        click.echo(
            f"{task}: {rows:,} rows on {count} workers in {seconds:.1f} s, {share:.0%} of the throughput of bare tiles; "
            f"{row['graph_keys']} keys for {row['partitions']} partitions"
        )


def bare_seconds(model: Any, data: Dataset) -> float:
    """Estimate the seconds that one core needs for the kernel values of all rows, from some rows in memory."""
    ids = np.arange(min(KEPT_CHUNKS * data.chunk_rows, len(data)))
    raw = data.rows(ids)
    dtype = np.dtype(np.float32)
    shift, factor = model._map
    members = as_features(model.support_vectors, dtype, shift, factor, False)
    parts = [
        as_features(raw[at : at + CHUNK_ROWS], dtype, shift, factor, False) for at in range(0, len(raw), CHUNK_ROWS)
    ]
    times = []
    with one_thread():
        for _ in range(4):
            start = time.perf_counter()
            for part in parts:
                margins(model.kernel, part, members, model.coefficients)
            times.append(time.perf_counter() - start)
    return statistics.median(times[1:]) * len(data) / len(ids)


if __name__ == "__main__":
    os.environ.setdefault("DASK_DISTRIBUTED__LOGGING__DISTRIBUTED", "warning")
    main()
