"""Large data: Forest by size next to a peer, cache sizes, sparse against dense, and 20 GB of data on workers with 2 GB.

`python -m pipelines.large forest --rows 25000,50000,100000`, `... forest --rows 521012 --tol 0.01 --no-peer`, `... cache`,
`... sparse --task reuters`, `... flat`
"""

import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import numpy as np
from distributed import Client
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from dasksvm import SMOSVC, Dataset, LaSVC, train
from dasksvm.model.prediction import compare_with_labels
from dasksvm.runtime import local_cluster, workers_of
from pipelines.cluster import peak
from pipelines.memory import Sampler
from pipelines.rows import environment, timed, write
from pipelines.tasks import load

folder_option = click.option(
    "--data", type=click.Path(path_type=Path), default=Path("../shared/data"), show_default=True
)
store_option = click.option("--store", type=click.Path(path_type=Path), default=Path("runs/zarr"), show_default=True)
out_option = click.option("--out", type=click.Path(path_type=Path), default=Path("runs/large.jsonl"), show_default=True)


@click.group()
def main() -> None:
    """Measure training on data that are larger than memory."""


def on_disk(name: str, data: Path, store: Path) -> tuple[Dataset, Dataset, dict[str, float]]:
    """Write the training and test rows of a task to Zarr, unless they exist."""
    paths = [store / f"{name}-{part}.zarr" for part in ("train", "test")]
    about = store / f"{name}.json"
    if not about.exists():
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)
        task = load(name, data)
        Dataset.create(paths[0], task.X, task.y, random_state=0)
        Dataset.create(paths[1], task.X_test, task.y_test, shuffle=False)
        about.write_text(json.dumps(task.parameters))
    parameters: dict[str, float] = json.loads(about.read_text())
    return Dataset.open(paths[0]), Dataset.open(paths[1]), parameters


def fit(data: Dataset, estimator: LaSVC | SMOSVC, workers: int, threads: bool) -> tuple[Any, dict[str, Any]]:
    """Train once, after compilation, on a cluster of this machine or in this process; return the run and its cost."""
    with ExitStack() as stack:
        client = None
        if workers:
            cluster = stack.enter_context(local_cluster(workers, processes=not threads))
            client = stack.enter_context(Client(cluster, direct_to_workers=True))
        budget = {"max_examples": 2000} if isinstance(estimator, LaSVC) else {"max_iter": 1}
        few = type(estimator)(**estimator.get_params() | budget | {"cache_size": 100})
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            train(data, few, client=client)
        with Sampler() as sampler:
            run, took = timed(lambda: train(data, estimator, client=client))
    row = {"seconds": took["seconds"], "peak_mb": sampler.peak, "support_vectors": int(run.estimator.n_support_.sum())}
    row["kernel_evaluations"] = run.estimator.kernel_evaluations_
    row |= {f"{name}_seconds": getattr(run.timings, name) for name in ("waiting", "taking", "reading", "tiling")}
    return run, row


@main.command()
@click.option("--rows", default="25000,50000,100000", show_default=True)
@click.option("--workers", default=2, show_default=True, help="Number of compute workers; 0: train in this process.")
@click.option("--threads", is_flag=True, help="Run workers as threads of this process.")
@click.option("--cache-size", default=2000.0, show_default=True)
@click.option("--tol", type=float, default=None, help="Train SMOSVC to this tolerance instead of LaSVC for one epoch.")
@click.option("--peer/--no-peer", default=True, show_default=True, help="Also run sklearnex, in its own process.")
@folder_option
@store_option
@out_option
def forest(
    rows: str,
    workers: int,
    threads: bool,
    cache_size: float,
    tol: float | None,
    peer: bool,
    data: Path,
    store: Path,
    out: Path,
) -> None:
    """Train for one epoch, or to the optimum, from Zarr on each number of rows; show how time and memory grow."""
    found = []
    for count in (int(text) for text in rows.split(",")):
        name = f"forest-{count}"
        examples, test, parameters = on_disk(name, data, store)
        shared = parameters | {"cache_size": cache_size, "random_state": 0}
        estimator = LaSVC(**shared) if tol is None else SMOSVC(**shared, tol=tol)
        run, row = fit(examples, estimator, workers, threads)
        table = compare_with_labels(run.model, test).confusion
        row |= {"error_percent": 100 * float(1 - table.trace() / table.sum()), "rows": count, "task": "forest"}
        row |= {"workers": workers, "threads": threads, "cache_size": cache_size, "tol": tol, "seed": 0}
        write(out, row | environment())
        found.append(row)
        click.echo(
            f"forest {count}: {row['seconds']:.1f} s, {row['peak_mb']:.0f} MB in all, {row['error_percent']:.2f} %, "
            f"{row['support_vectors']} SVs; waiting {row['waiting_seconds']:.1f} s, reading {row['reading_seconds']:.1f} s"
        )
        if peer:
            other = against("sklearnex", name, data)
            write(out, other)
            ratio = row["seconds"] / other["seconds"]
            click.echo(f"    sklearnex {other['seconds']:.1f} s, {other['error_percent']:.2f} %: {ratio:.2f} of it")
    if len(found) > 1:
        for field in ("seconds", "peak_mb", "support_vectors"):
            logs = np.log([[row["rows"], row[field]] for row in found])
            click.echo(f"{field} grows like n^{np.polyfit(logs[:, 0], logs[:, 1], 1)[0]:.2f}")


def against(solver: str, task: str, data: Path) -> dict[str, Any]:
    """Measure a peer in its own process."""
    command = [sys.executable, "-m", "pipelines.compare", "--one", solver, "--task", task, "--data", str(data)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    row: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return row


@main.command()
@click.option("--task", default="mnist8", show_default=True)
@click.option("--sizes", default="1000,50,8", show_default=True, help="Cache sizes in MB.")
@click.option("--repeats", default=3, show_default=True)
@folder_option
@out_option
def cache(task: str, sizes: str, repeats: int, data: Path, out: Path) -> None:
    """Train in this process with several cache sizes in turn (paper 1, figure 6)."""
    loaded = load(task, data)
    times: dict[float, list[float]] = {float(size): [] for size in sizes.split(",")}
    LaSVC(**loaded.parameters, random_state=0, cache_size=8).fit(loaded.X[:5000], loaded.y[:5000])
    for seed in range(repeats):
        for size, mine in times.items():
            estimator = LaSVC(**loaded.parameters, random_state=seed, cache_size=size)
            model, took = timed(lambda estimator=estimator: estimator.fit(loaded.X, loaded.y))  # type: ignore[misc]
            row = {"measure": "cache", "task": task, "cache_size": size, "seed": seed, **took}
            write(out, row | {"kernel_evaluations": model.kernel_evaluations_} | environment())
            mine.append(took["seconds"])
    base = float(np.median(next(iter(times.values()))))
    for size, mine in times.items():
        click.echo(f"{task} cache {size:g} MB: {np.median(mine):.2f} s, {np.median(mine) / base:.2f} of the first")


@main.command()
@click.option("--task", default="reuters", show_default=True)
@click.option("--epochs", default="converged", show_default=True)
@click.option("--repeats", default=3, show_default=True)
@folder_option
@store_option
@out_option
def sparse(task: str, epochs: str, repeats: int, data: Path, store: Path, out: Path) -> None:
    """Train on a task as CSR and as a dense matrix, from Zarr, each in its own process."""
    import scipy.sparse as sp

    loaded = load(task, data)
    for kind in ("csr", "dense"):
        for part, X, y in (("train", loaded.X, loaded.y), ("test", loaded.X_test, loaded.y_test)):
            path = store / f"{task}-{kind}-{part}.zarr"
            if not path.exists():
                Dataset.create(
                    path, sp.csr_matrix(X) if kind == "csr" else X, y, shuffle=part == "train", random_state=0
                )
    settings = {**loaded.parameters, "epochs": epochs if epochs == "converged" else int(epochs), "random_state": 0}
    for kind in ("csr", "dense"):
        stem = str(store / f"{task}-{kind}")
        rows = []
        for _ in range(repeats):
            code = f"from pipelines.large import alone; alone({stem!r}, {settings!r})"
            result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
            rows.append(json.loads(result.stdout.splitlines()[-1]) | {"task": task, "kind": kind})
            write(out, rows[-1] | environment())
        seconds = float(np.median([row["seconds"] for row in rows]))
        click.echo(
            f"{task} {kind}: {seconds:.2f} s, dual {rows[0]['dual']:.5f}, {rows[0]['support_vectors']} SVs, accuracy "
            f"{rows[0]['accuracy']:.2%}, peak {rows[0]['peak_mb']:.0f} MB, {rows[0]['stored_mb']:.1f} MB on disk"
        )


def alone(path: str, settings: dict[str, Any]) -> None:
    """Fit in this process and print a JSON row."""
    data, test = Dataset.open(f"{path}-train.zarr"), Dataset.open(f"{path}-test.zarr")
    LaSVC(**settings | {"max_examples": 500}).fit(data)
    model, took = timed(lambda: LaSVC(**settings).fit(data))
    took["peak_mb"] = peak()
    stored = data.stored_bytes()
    row = {"dual": model.dual_objective_, "support_vectors": int(model.n_support_.sum()), "accuracy": model.score(test)}
    click.echo(json.dumps(row | took | {"stored_mb": stored / 1e6, "settings": settings}))


def clusters_of_points(
    rng: np.random.Generator, rows: int, width: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Draw points around 40 centres with alternating classes."""
    centres = np.random.default_rng(7).normal(size=(40, width)).astype(np.float32)
    of = rng.integers(0, 40, rows)
    X = rng.standard_normal((rows, width), np.float32)
    X += centres[of]
    return X, of % 2


@main.command()
@click.option("--rows", default=10_000_000, show_default=True)
@click.option("--width", default=500, show_default=True)
@click.option("--workers", default=2, show_default=True)
@click.option("--limit", default="2GB", show_default=True, help="Memory limit of each worker.")
@click.option("--max-time", default=900.0, show_default=True)
@store_option
@out_option
def flat(rows: int, width: int, workers: int, limit: str, max_time: float, store: Path, out: Path) -> None:
    """Create a data set chunk by chunk, and train for one epoch with workers that have less memory than it needs."""
    import dask.array as da

    path, block = store / f"points-{rows}-{width}.zarr", 20_000
    if not path.exists():
        start = time.perf_counter()
        sizes = [min(block, rows - at) for at in range(0, rows, block)]

        def points(block_info: Any = None) -> NDArray[np.float32]:
            at = block_info[None]["chunk-location"][0]
            return clusters_of_points(np.random.default_rng(at), sizes[at], width)[0]

        X = da.map_blocks(points, chunks=(tuple(sizes), (width,)), dtype="f4", meta=np.empty((0, width), "f4"))
        y = np.concatenate([np.random.default_rng(at).integers(0, 40, size) % 2 for at, size in enumerate(sizes)])
        Dataset.create(path, X, y, shuffle=False)
        click.echo(f"made in {time.perf_counter() - start:.0f} s")
    data = Dataset.open(path)
    estimator = LaSVC(C=1.0, gamma=0.25 / width, cache_size=300, max_time=max_time, random_state=0)
    with local_cluster(workers, memory_limit=limit) as cluster, Client(cluster, direct_to_workers=True) as client:

        def statuses() -> dict[str, Any]:
            known = workers_of(client).values()
            by_worker = {str(worker["name"]): worker["metrics"]["memory"] / 1e6 for worker in known}
            return {"workers_mb": by_worker, "statuses": sorted({str(worker["status"]) for worker in known})}

        before = set(workers_of(client))
        with Sampler(statuses) as sampler:
            run, took = timed(lambda: train(data, estimator, client=client))
        same = before == set(workers_of(client))
    seen = run.history[-1]["seen"]
    states = sorted({state for sample in sampler.samples for state in sample["statuses"]})
    row = {"measure": "flat", "rows": rows, "width": width, "limit": limit, "seconds": took["seconds"], "seen": seen}
    row |= {"peak_mb": sampler.peak, "no_worker_lost": same, "statuses": states, "workers": workers}
    row |= {"support_vectors": int(run.estimator.n_support_.sum()), **vars(run.timings)}
    write(out, row | environment() | {"samples": sampler.samples})
    plot(sampler.samples, out.parent / f"flat-{rows}.png")
    click.echo(
        f"{seen:,} of {rows:,} rows in {took['seconds']:.0f} s, {row['support_vectors']} SVs; peak of all processes "
        f"{sampler.peak:.0f} MB; workers lost: {not same}; states {', '.join(states)}; waiting {run.timings.waiting:.0f} s, "
        f"reading {run.timings.reading:.0f} s, tiles {run.timings.tiling:.0f} s"
    )


def plot(samples: list[dict[str, Any]], path: Path) -> None:
    """Plot the memory of each worker over time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.5))
    seconds = [sample["seconds"] for sample in samples]
    for name in samples[0]["workers_mb"]:
        label = name if name == "coordinator" else f"worker {name}"
        axes.plot(seconds, [sample["workers_mb"].get(name, np.nan) for sample in samples], label=label)
    axes.set(xlabel="seconds", ylabel="memory, MB", ylim=(0, None))
    axes.legend()
    figure.savefig(path, dpi=110, bbox_inches="tight")
    pyplot.close(figure)


if __name__ == "__main__":
    os.environ.setdefault("DASK_DISTRIBUTED__LOGGING__DISTRIBUTED", "warning")
    main()
