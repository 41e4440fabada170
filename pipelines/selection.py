"""Example selection and active learning, as in section 4 of paper 1: its figures 11 to 16 as JSON rows and plots.

`python -m pipelines.selection curves --task adult`, `... curves --task mnist8 --noise 0.1`, `... queries`, `... pool`,
`... speed`, then `... plot`
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import dask.config
import numpy as np
import scipy.sparse as sp
from distributed import Client
from numpy.typing import NDArray

from dasksvm import ActiveLearner, Dataset, HeldOut, LaSVC, train
from dasksvm.config import workspaces
from dasksvm.config.blas import one_thread
from dasksvm.runtime import local_cluster
from dasksvm.solver.engine.criteria import CRITERIA
from dasksvm.solver.engine.tiles import margins
from pipelines.compare import make
from pipelines.curves import KEPT, print_curves
from pipelines.rows import environment, timed, write
from pipelines.tasks import Task, load, noisy, split

folder_option = click.option(
    "--data", type=click.Path(path_type=Path), default=Path("../shared/data"), show_default=True
)
out_option = click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runs/selection.jsonl"), show_default=True
)


@click.group()
def main() -> None:
    """Compare ways to select examples."""


@main.command()
@click.option("--task", "name", default="adult", show_default=True)
@click.option("--noise", default=0.0, show_default=True, help="Share of the training labels to flip.")
@click.option("--c", "C", type=float, help="Override the C of the task.")
@click.option("--criteria", default=",".join(CRITERIA), show_default=True)
@click.option("--seeds", default=10, show_default=True, help="Number of splits of adult, or of orders of other tasks.")
@click.option(
    "--examples",
    default=12_000,
    show_default=True,
    help="Largest number of examples; random selection always makes a whole epoch.",
)
@click.option("--every", default=1000, show_default=True, help="Examples between two evaluations.")
@click.option("--cache-size", default=1000.0, show_default=True)
@folder_option
@out_option
def curves(
    name: str,
    noise: float,
    C: float | None,
    criteria: str,
    seeds: int,
    examples: int,
    every: int,
    cache_size: float,
    data: Path,
    out: Path,
) -> None:
    """Record the test error during training; also the exact SVM on clean labels, and one epoch without evaluations."""
    found = load(name, data)
    whole = replace(found, parameters=found.parameters | ({} if C is None else {"C": C}))
    LaSVC(**whole.parameters, selection="active", max_examples=300).fit(whole.X[:3000], whole.y[:3000])
    for seed in range(seeds):
        clean = split(whole, seed) if name == "adult" else whole
        task = noisy(clean, noise, seed) if noise else clean
        about = {"pipeline": "curves", "task": name, "noise": noise, "C": whole.parameters["C"], "seed": seed}
        about |= environment()
        if seed == 0 or name == "adult":
            write(out, about | {"solver": "sklearnex"} | _fitted(make("sklearnex", clean, cache_size, seed), clean))
        if "random" in criteria:
            write(out, about | {"solver": "epoch"} | _fitted(make("lasvc", task, cache_size, seed), task))
        for criterion in criteria.split(","):
            most, step = (None, 4 * every) if criterion == "random" else (examples, every)
            estimator = LaSVC(
                **task.parameters, selection=criterion, max_examples=most, cache_size=cache_size, random_state=seed
            )
            watched = HeldOut(task.X_test, task.y_test, every=step)
            train((task.X, task.y), estimator, callbacks=[watched])
            curve = [{key: entry[key] for key in KEPT} for entry in watched.entries]
            write(out, about | {"solver": criterion, "curve": curve})
            best = min(curve, key=lambda entry: entry["error"])
            click.echo(f"seed {seed} {criterion}: {_told(curve[-1])}; best {_told(best)}")
    print_curves(out, name, noise, whole.parameters["C"])


def _fitted(model: Any, task: Task) -> dict[str, Any]:
    _, took = timed(lambda: model.fit(task.X, task.y))
    error = float(np.mean(model.predict(task.X_test) != task.y_test))
    return {"error": error, "support_vectors": int(np.sum(model.n_support_)), "seconds": took["seconds"]}


def _told(entry: dict[str, Any]) -> str:
    return (
        f"{100 * entry['error']:.2f} % after {entry['seen']} examples with {entry['support_vectors']} SVs, "
        f"{entry['seconds']:.2f} s"
    )


@main.command()
@click.option("--count", default=500, show_default=True, help="Number of labels to query.")
@click.option("--seeds", default=3, show_default=True)
@click.option("--peer/--no-peer", default=True, show_default=True, help="Also refit scikit-learn's SVC for each label.")
@folder_option
@out_option
def queries(count: int, seeds: int, peer: bool, data: Path, out: Path) -> None:
    """Reproduce figure 16 on Reuters: one iteration per label or retraining; 50 candidates or the whole pool."""
    task = load("reuters", data)
    X, X_test = sp.csr_matrix(task.X), sp.csr_matrix(task.X_test)
    task = Task(task.name, X, task.y, X_test, task.y_test, task.parameters)
    methods: dict[str, dict[str, Any]] = {
        "LASVM RANDOM": {"selection": "random"},
        "LASVM ACTIVE 50": {},
        "LASVM ACTIVE ALL": {"candidates": "all"},
        "RETRAIN ACTIVE 50": {"retrain": True},
        "RETRAIN ACTIVE ALL": {"retrain": True, "candidates": "all"},
    }
    for seed in range(seeds):
        drawn = np.random.default_rng(seed)
        first = np.concatenate([drawn.choice(np.flatnonzero(task.y == side), 5, replace=False) for side in (-1, 1)])
        about = {"pipeline": "queries", "task": "reuters", "seed": seed} | environment()
        for method, options in methods.items():
            learner = ActiveLearner(LaSVC(**task.parameters, random_state=seed), task.X, **options)
            learner.teach(first, task.y[first])
            curve, seconds = [], 0.0
            for asked in range(1, count + 1):
                start = time.perf_counter()
                ids = learner.query()
                learner.teach(ids, task.y[ids])
                seconds += time.perf_counter() - start
                if asked % 50 == 0:
                    error = 1 - learner.score(task.X_test, task.y_test)
                    curve.append({"labels": asked, "error": error, "seconds": seconds})
            _keep(out, about, method, curve)
        if peer:
            _keep(out, about, "SVC ANEW ALL", _anew(task, first, count))


def _keep(out: Path, about: dict[str, Any], method: str, curve: list[dict[str, float]]) -> None:
    write(out, about | {"solver": method, "curve": curve})
    click.echo(f"{method}: {curve[-1]['seconds']:.2f} s, errors {[round(100 * at['error'], 2) for at in curve]}")


def _anew(task: Task, first: NDArray[np.int64], count: int) -> list[dict[str, float]]:
    """Run the usual loop: refit scikit-learn's SVC to all labels, and query the row nearest to the boundary."""
    from sklearn.svm import SVC

    ids, curve, seconds = list(first), [], 0.0
    for asked in range(count + 1):
        start = time.perf_counter()
        model = SVC(**task.parameters).fit(task.X[ids], task.y[ids])
        seconds += time.perf_counter() - start
        if asked and asked % 50 == 0:
            error = float(np.mean(model.predict(task.X_test) != task.y_test))
            curve.append({"labels": asked, "error": error, "seconds": seconds})
        start = time.perf_counter()
        distance = np.abs(model.decision_function(task.X))
        distance[ids] = np.inf
        ids.append(int(np.argmin(distance)))
        seconds += time.perf_counter() - start
    return curve


@contextmanager
def clusters(workers: int) -> Iterator[Client | None]:
    """Yield a client of a cluster of this machine, or None."""
    if not workers:
        yield None
        return
    with local_cluster(workers) as cluster, Client(cluster, direct_to_workers=True) as client:
        yield client


@main.command()
@click.option("--rows", default=1_000_000, show_default=True)
@click.option("--labels", default="500,2000", show_default=True)
@click.option("--workers", default="0,2", show_default=True)
@click.option("--store", type=click.Path(path_type=Path), default=Path("runs/zarr"), show_default=True)
@folder_option
@out_option
def pool(rows: int, labels: str, workers: str, store: Path, data: Path, out: Path) -> None:
    """Search a whole pool on Zarr, with rows like Forest's, and compare with scoring rows in memory on two threads."""
    task = load("forest-500000", data)
    draw = np.random.default_rng(0)
    pick = draw.integers(0, len(task.X), rows)
    X, y = task.X[pick], task.y[pick]
    X[:, :10] += draw.normal(scale=0.01, size=(rows, 10)).astype(np.float32)
    path = store / f"pool-{rows}.zarr"
    examples = Dataset.open(path) if path.exists() else Dataset.create(path, X, y, shuffle=False)
    for count in (int(text) for text in labels.split(",")):
        learner = ActiveLearner(LaSVC(**task.parameters, random_state=0), examples, candidates="all")
        ids = draw.choice(rows, count, replace=False)
        learner.teach(ids, y[ids])
        bare = _tiles(learner, X)
        for number in (int(text) for text in workers.split(",")):
            with clusters(number) as client:
                learner.estimator.set_params(client=client)
                learner.query(10)
                ask = partial(learner.query, 10)
                seconds = float(np.median([timed(ask)[1]["seconds"] for _ in range(5)]))
            row = {"pipeline": "pool", "rows": rows, "labels": count, "workers": number, "seconds": seconds}
            row |= {"rows_per_second": rows / seconds, "bare_rows_per_second": bare}
            write(out, row | environment())
            click.echo(
                f"{count} labels, {number} workers: {seconds:.2f} s a query, {rows / seconds / bare:.0%} of bare tiles"
            )


def _tiles(learner: ActiveLearner, X: NDArray[np.float32], rows: int = 2048) -> float:
    """Return the rows per second that two threads score if nothing has to be read."""
    view, features = learner._view(), learner._form.apply(X[: 100 * rows])
    starts = range(0, len(features), rows)

    def tile(start: int) -> None:
        part = features.part(start, min(start + rows, len(features)))
        margins(learner._kernel, part, view.members, view.alpha, view.order, workspaces.of_this_thread())

    with one_thread(), ThreadPoolExecutor(2) as threads:
        list(threads.map(tile, starts))
        seconds = min(timed(lambda: list(threads.map(tile, starts)))[1]["seconds"] for _ in range(3))
    return len(features) / seconds


@main.command()
@click.option("--task", "name", default="adult", show_default=True)
@click.option("--criterion", default="active", show_default=True)
@click.option("--examples", default=2000, show_default=True)
@click.option("--seeds", default=3, show_default=True)
@click.option("--workers", default="0,2", show_default=True)
@click.option("--store", type=click.Path(path_type=Path), default=Path("runs/zarr"), show_default=True)
@folder_option
@out_option
def speed(
    name: str, criterion: str, examples: int, seeds: int, workers: str, store: Path, data: Path, out: Path
) -> None:
    """Compare batched and exact selection, in this process and on a local cluster: examples per second and error."""
    task = load(name, data)
    path = store / f"{name}-selection.zarr"
    rows = Dataset.open(path) if path.exists() else Dataset.create(path, task.X, task.y, random_state=0)
    for number in (int(text) for text in workers.split(",")):
        with clusters(number) as client:
            found = {}
            for exact in (True, False):
                with dask.config.set({"dasksvm.exact-selection": exact}):
                    found[exact] = [
                        _chosen(task, rows, criterion, examples, seed, client) for seed in range(seeds + 1)
                    ][1:]
                error, rate = (np.mean([run[key] for run in found[exact]]) for key in ("error", "examples_per_second"))
                about = {"pipeline": "speed", "task": name, "criterion": criterion, "workers": number, "exact": exact}
                write(out, about | {"runs": found[exact]} | environment())
                click.echo(
                    f"{number} workers, {'exact' if exact else 'batched'}: {rate:.0f} examples/s, {100 * error:.2f} %"
                )


def _chosen(task: Task, rows: Dataset, criterion: str, examples: int, seed: int, client: Any) -> dict[str, float]:
    estimator = LaSVC(**task.parameters, selection=criterion, max_examples=examples, random_state=seed)
    run, took = timed(lambda: train(rows, estimator, client=client))
    error = float(np.mean(run.model.predict(task.X_test) != task.y_test))
    return {"error": error, "seconds": took["seconds"], "examples_per_second": examples / took["seconds"]}


@main.command()
@click.option("--folder", type=click.Path(path_type=Path), default=Path("runs"), show_default=True)
@out_option
def plot(folder: Path, out: Path) -> None:
    """Plot figures 11 to 16, as far as there are rows for them."""
    from pipelines import selection_plots

    for path in selection_plots.draw(out, folder):
        click.echo(path)


if __name__ == "__main__":
    main()
