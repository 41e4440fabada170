"""Train LaSVC and other solvers on a task: prints medians and ratios, and writes a JSON row for each fit.

Each fit runs in its own process, so that its peak memory is measured separately and no solver profits from another one.
`python -m pipelines.compare --task mnist8 --solvers lasvc,sklearnex,sklearn --repeats 3`, with wrong labels
`python -m pipelines.compare --task mnist --noise 0.1 --solvers lasvc-ovo,lasvc,sklearnex --repeats 1`
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np

from pipelines.rows import environment, timed, write
from pipelines.tasks import Task, load, noisy

# LaSVC's parameters, by the name of a solver.
LASVC: dict[str, dict[str, Any]] = {
    "lasvc": {},
    "lasvc-ovo": {"decision_function_shape": "ovo"},
    "single": {"engine": "single"},
    "single-converged": {"engine": "single", "epochs": "converged"},
    "blocks": {"engine": "blocks", "epochs": 1},
    "blocks-2": {"engine": "blocks", "epochs": 2},
    "blocks-converged": {"engine": "blocks", "epochs": "converged"},
}
# Rows of the fit that compiles: so many that LaSVC works in blocks.
FIRST_ROWS = 6000
SOLVERS = (*LASVC, "smosvc", "sklearnex", "sklearn")


def make(solver: str, task: Task, cache_size: float | None, seed: int) -> Any:
    """Make an estimator with the settings that comparisons use; without `cache_size`, its default."""
    cache = {} if cache_size is None else {"cache_size": cache_size}
    match solver:
        case name if name in LASVC:
            from dasksvm import LaSVC

            return LaSVC(**task.parameters, **LASVC[name], **cache, random_state=seed)
        case "smosvc":
            from dasksvm import SMOSVC

            return SMOSVC(**task.parameters, **cache, random_state=seed)
        case "sklearnex":
            import daal4py
            from sklearnex.svm import SVC as Pinned

            daal4py.daalinit(nthreads=len(os.sched_getaffinity(0)))
            return Pinned(**task.parameters, cache_size=4000)
        case "sklearn":
            from sklearn.svm import SVC

            return SVC(**task.parameters, cache_size=4000)
        case _:
            raise click.UsageError(f"unknown solver {solver!r}: it must be one of {', '.join(SOLVERS)}.")


def measure(solver: str, task: Task, cache_size: float | None, seed: int) -> dict[str, Any]:
    """Fit once, after a small fit that compiles or loads code, and evaluate."""
    make(solver, task, cache_size, seed).fit(task.X[:FIRST_ROWS], task.y[:FIRST_ROWS])
    estimator = make(solver, task, cache_size, seed)
    (model, about), cost = timed(lambda: fit(solver, estimator, task))
    predicted, prediction = timed(lambda: model.predict(task.X_test))
    return {
        "solver": solver,
        "task": task.name,
        "rows": len(task.X),
        "seed": seed,
        **cost,
        "predict_seconds": prediction["seconds"],
        "error_percent": 100 * float(np.mean(predicted != task.y_test)),
        "support_vectors": int(np.sum(model.n_support_)),
        "dual": dual(model, task) if len(model.classes_) == 2 else None,
        "kernel_evaluations": getattr(model, "kernel_evaluations_", None),
        "parameters": task.parameters,
        "cache_size": 4000 if solver.startswith("sklearn") else cache_size,
        "tile_ns": bare_tile_ns(task),
        **about,
    }


def fit(solver: str, estimator: Any, task: Task) -> tuple[Any, dict[str, Any]]:
    """Fit an estimator, and return where its time went if it is one of ours."""
    if solver.startswith("sklearn"):
        return estimator.fit(task.X, task.y), {}
    from dasksvm import train

    run = train((task.X, task.y), estimator)
    return run.estimator, {"timings": vars(run.timings)}


def bare_tile_ns(task: Task) -> float:
    """Measure what a kernel value of the task takes; called after the fit, so that no peer's memory has our modules."""
    from pipelines.costs import tile_ns

    return tile_ns(task.X.shape[1])


def dual(model: Any, task: Task) -> float:
    """Compute the dual objective in float64, with the same code for every solver."""
    from dasksvm.model.kernel_model import KernelModel
    from dasksvm.solver.kernels.kernel import Kernel

    vectors = task.X[model.support_].astype(np.float64)
    kernel = Kernel("rbf", task.parameters["gamma"])
    coefficients = np.asarray(model.dual_coef_, np.float64).reshape(1, -1)
    return float(KernelModel(kernel, vectors, coefficients, np.zeros(1), np.unique(task.y)).dual_objectives()[0])


@click.command()
@click.option(
    "--task", default="mnist8", show_default=True, help="For example mnist8, adult, letter-A, or forest-N for N rows."
)
@click.option("--data", type=click.Path(path_type=Path), default=Path("../shared/data"), show_default=True)
@click.option("--solvers", default="lasvc,sklearnex,sklearn", show_default=True, help=f"Some of {', '.join(SOLVERS)}.")
@click.option("--repeats", default=3, show_default=True)
@click.option("--cache-size", type=float, help="Memory for kernel values in MB.  [default: that of each estimator]")
@click.option("--noise", default=0.0, show_default=True, help="Share of the training labels that are wrong.")
@click.option("--seed", default=0, show_default=True, help="Seed of the first repeat; each further repeat adds 1.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs/compare.jsonl"), show_default=True)
@click.option("--one", default=None, hidden=True)
def main(
    task: str,
    data: Path,
    solvers: str,
    repeats: int,
    cache_size: float | None,
    noise: float,
    seed: int,
    out: Path,
    one: str | None,
) -> None:
    """Compare solvers on a task."""
    if one is not None:
        given = noisy(load(task, data), noise, seed)
        click.echo(json.dumps(measure(one, given, cache_size, seed) | {"noise": noise} | environment()))
        return
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in solvers.split(",")}
    for repeat in range(repeats):
        for name, rows in found.items():
            arguments = [
                "--task",
                task,
                "--data",
                str(data),
                "--noise",
                str(noise),
                "--seed",
                str(seed + repeat),
                *([] if cache_size is None else ["--cache-size", str(cache_size)]),
            ]
            command = [sys.executable, "-m", "pipelines.compare", "--one", name, *arguments]
            result = subprocess.run(command, check=True, capture_output=True, text=True)
            row = json.loads(result.stdout.splitlines()[-1])
            rows.append(row)
            write(out, row)
            click.echo(describe(name, [row]))
    base = statistics.median(row["seconds"] for row in found[solvers.split(",")[0]])
    click.echo(f"\nmedians of {repeats}; {task}")
    for name, rows in found.items():
        seconds = statistics.median(row["seconds"] for row in rows)
        click.echo(f"{describe(name, rows)}  {solvers.split(',')[0]} takes {base / seconds:.3f} of its time")


def describe(name: str, rows: list[dict[str, Any]]) -> str:
    """Format the medians of some rows as a line."""

    def middle(field: str) -> float:
        return float(statistics.median(row[field] for row in rows))

    found = "" if rows[0]["dual"] is None else f"dual {middle('dual'):14.4f}  "
    return (
        f"{name:16} {middle('seconds'):8.2f} s  error {middle('error_percent'):6.2f} %  "
        f"{middle('support_vectors'):7.0f} SVs  {found}peak {middle('peak_mb'):6.0f} MB"
    )


if __name__ == "__main__":
    main()
