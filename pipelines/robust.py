"""Gap-driven and robust solvers next to LASVM and the exact SVM: tables 1, 3, 4 and figures 1, 2, 4 to 8 of paper 2.

`python -m pipelines.robust table --task adult`, `... curves --task adult`, `... ramps --task adult`, `... analysis`, then
`... report` and `... plot`. Tasks are adult, banana, mnist8, reuters, and mnist8-noisy with a tenth of the training labels wrong.
"""

import json
import statistics
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import scipy.sparse as sp
from sklearn.metrics import confusion_matrix, roc_auc_score

from dasksvm import GapSVC, KernelModel, LaSVC, train
from dasksvm.model.metrics import break_even, geometric_mean
from dasksvm.training.callbacks import HeldOut
from pipelines.compare import make
from pipelines.robust_analysis import regions
from pipelines.robust_paper import ANALYSIS, FIGURES, PAPER
from pipelines.rows import environment, read_rows, timed, write
from pipelines.tasks import Task, load, noisy, split

VARIANTS = ("full", "g", "nc", "i")
SOLVERS = (*VARIANTS, "lasvm", "svc")
# Table 2.
PARAMETERS = {
    "adult": {"C": 100.0, "gamma": 0.005},
    "banana": {"C": 10.0, "gamma": 1.0},
    "mnist8": {"C": 100.0, "gamma": 0.001},
    "reuters": {"C": 1.0, "gamma": 0.5},
}
POINTS = 40
WARM = 1500
task_option = click.option("--task", "name", default="adult", show_default=True)
runs_option = click.option(
    "--runs", default=10, show_default=True, help="Number of orders of the examples; for banana also of splits."
)
cache_option = click.option("--cache-size", default=1000.0, show_default=True)
data_option = click.option("--data", type=click.Path(path_type=Path), default=Path("../shared/data"), show_default=True)
out_option = click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runs/robust.jsonl"), show_default=True
)


@click.group()
def main() -> None:
    """Compare solvers that keep the model small despite label noise."""


def task_of(name: str, seed: int, data: Path) -> Task:
    """Load a task with the parameters of table 2; the seed determines noisy labels and the split of banana."""
    kind = name.removesuffix("-noisy")
    found = load(kind, data)
    if kind == "banana":
        found = split(found, seed)
    if kind == "reuters":
        found = replace(found, X=sp.csr_matrix(found.X), X_test=sp.csr_matrix(found.X_test))
    found = replace(found, parameters=PARAMETERS[found.name])
    return noisy(found, 0.1, seed) if name.endswith("-noisy") else found


def solver(name: str, task: Task, seed: int, cache_size: float, **options: Any) -> Any:
    """Make one of the solvers of the tables."""
    common = task.parameters | {"cache_size": cache_size, "random_state": seed} | options
    if name in VARIANTS:
        return GapSVC(variant=name, **common)
    match name:
        case "lasvm":
            return LaSVC(**common)
        case "svc":
            return make("sklearnex", task, cache_size, seed)
        case _:
            raise click.UsageError(f"unknown solver {name!r}: it must be one of {', '.join(SOLVERS)}.")


def figures(positive: Any, values: Any) -> dict[str, float]:
    """Compute accuracy, break-even point, AUC and g-means of decision values."""
    table = confusion_matrix(positive, values > 0)
    return {
        "accuracy": 100 * float(table.trace() / table.sum()),
        "break_even": 100 * break_even(positive, values),
        "auc": float(roc_auc_score(positive, values)),
        "g_means": 100 * geometric_mean(table),
    }


def _alone(command: str, out: Path, *arguments: Any) -> dict[str, Any]:
    """Run one fit in its own process, and write its row."""
    line = [sys.executable, "-m", "pipelines.robust", command, *map(str, arguments)]
    done = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    write(out, row)
    return row


@main.command()
@task_option
@click.option("--solvers", default=",".join(SOLVERS), show_default=True)
@runs_option
@cache_option
@data_option
@out_option
def table(name: str, solvers: str, runs: int, cache_size: float, data: Path, out: Path) -> None:
    """Train each solver on several orders of the examples (tables 3 and 4)."""
    for seed in range(runs):
        for each in solvers.split(","):
            row = _alone("fit", out, "--task", name, "--solver", each, "--seed", seed, *_where(cache_size, data))
            told = ", ".join(f"{figure} {row[figure]:.6g}" for figure in FIGURES if row[figure] is not None)
            click.echo(f"{name} {each} {seed}: {told}")


def _where(cache_size: float, data: Path) -> tuple[Any, ...]:
    return ("--cache-size", cache_size, "--data", data)


@main.command(hidden=True)
@task_option
@click.option("--solver", "of", type=click.Choice(SOLVERS), default="g")
@click.option("--seed", default=0)
@click.option("--ramp", default=-1.0)
@click.option("--watch/--no-watch", default=False)
@cache_option
@data_option
def fit(name: str, of: str, seed: int, ramp: float, watch: bool, cache_size: float, data: Path) -> None:
    """Fit one solver once, and print its row."""
    task = task_of(name, seed, data)
    options = {"ramp": ramp} if of in ("nc", "i") else {}
    solver(of, task, seed, cache_size, **options).fit(task.X[:WARM], task.y[:WARM])
    model = solver(of, task, seed, cache_size, **options)
    row: dict[str, Any] = {"pipeline": "robust", "task": name, "solver": of, "seed": seed, "ramp": ramp, "watch": watch}
    if watch:
        curve = CurvePoints(task)
        run, cost = timed(partial(train, (task.X, task.y), model, callbacks=[curve]))
        model, step = run.estimator, max(len(run.history) // 400, 1)
        row["curve"] = curve.points
        row["steps"] = [point(entry) for entry in run.history[::step] if entry["phase"] != "intermediate"]
    else:
        _, cost = timed(partial(model.fit, task.X, task.y))
    row |= cost | figures(task.y_test > 0, model.decision_function(task.X_test))
    row |= {
        "support_vectors": int(np.sum(model.n_support_)),
        "kernel_evaluations": getattr(model, "kernel_evaluations_", None),
        "parameters": task.parameters,
        "cache_size": cache_size,
    }
    click.echo(json.dumps(row | environment()))


def point(entry: dict[str, Any]) -> dict[str, Any]:
    """Select the values of a history entry that are plotted."""
    kept = ("seen", "support_vectors", "kernel_evaluations", "seconds", "gap")
    return {key: entry[key] for key in kept if key in entry}


class CurvePoints(HeldOut):
    """Break-even points and errors of finished copies on the test set."""

    def __init__(self, task: Task) -> None:
        super().__init__(task.X_test, task.y_test, every=max(task.X.shape[0] // POINTS, 1))
        self.points: list[dict[str, Any]] = []

    def evaluate(self, model: KernelModel, entry: dict[str, Any]) -> bool:
        """Measure a model."""
        values = model.decision_function(self.X)[:, 0]
        self.points.append(point(entry) | figures(self.y > 0, values) | {"support_vectors": len(model.coefficients[0])})
        return False


@main.command()
@task_option
@click.option("--solvers", default="full,g,nc,i,lasvm", show_default=True)
@cache_option
@data_option
@out_option
def curves(name: str, solvers: str, cache_size: float, data: Path, out: Path) -> None:
    """Record gap, break-even point, error, support vectors and kernel values over one pass (figures 1, 2, 4, 6 and 7)."""
    for each in solvers.split(","):
        row = _alone("fit", out, "--task", name, "--solver", each, "--watch", *_where(cache_size, data))
        click.echo(f"{name} {each}: {len(row['curve'])} points, {row['accuracy']:.2f} %")


@main.command()
@task_option
@click.option("--ramps", default="-3,-2,-1.5,-1,-0.5,0,0.5", show_default=True)
@runs_option
@cache_option
@data_option
@out_option
def ramps(name: str, ramps: str, runs: int, cache_size: float, data: Path, out: Path) -> None:
    """Train with several values of the ramp parameter s (figure 5)."""
    for seed in range(runs):
        for ramp in map(float, ramps.split(",")):
            for each in ("nc", "i"):
                where = _where(cache_size, data)
                row = _alone("fit", out, "--task", name, "--solver", each, "--seed", seed, "--ramp", ramp, *where)
                click.echo(f"{name} {each} s = {ramp}: {row['accuracy']:.2f} %, {row['support_vectors']} SVs")


@main.command()
@task_option
@click.option("--solvers", default="g,nc", show_default=True)
@data_option
@out_option
def analysis(name: str, solvers: str, data: Path, out: Path) -> None:
    """Count the examples on each side of the ramp when they enter, and how many of them stay (table 1)."""
    task = task_of(name, 0, data)
    for each in solvers.split(","):
        row = {"pipeline": "analysis", "task": name, "solver": each} | regions(solver(each, task, 0, 1000.0), task)
        write(out, row | environment())
        click.echo(f"{name} {each}: {row}; the paper {ANALYSIS.get(each)}")


@main.command()
@out_option
def report(out: Path) -> None:
    """Print the means of the tables next to the values of the paper."""
    rows = read_rows(out)
    rows = [row for row in rows if row["pipeline"] == "robust" and not row["watch"] and row["ramp"] == -1.0]
    for task, each in sorted({(row["task"], row["solver"]) for row in rows}):
        mine = [row for row in rows if (row["task"], row["solver"]) == (task, each)]
        paper = PAPER.get((task, each), (None,) * len(FIGURES))
        click.echo(f"{task} {each}, {len(mine)} runs")
        for figure, known in zip(FIGURES, paper, strict=True):
            values = [row[figure] for row in mine if row[figure] is not None]
            if not values:
                continue
            scale = 1e-6 if figure == "kernel_evaluations" else 1.0
            mean, spread = scale * statistics.mean(values), scale * statistics.pstdev(values)
            click.echo(f"  {figure:20} {mean:12.3f} ± {spread:9.3f}   the paper {known}")


@main.command()
@out_option
@click.option("--folder", type=click.Path(path_type=Path), default=Path("runs/figures"), show_default=True)
def plot(out: Path, folder: Path) -> None:
    """Plot the figures."""
    from pipelines.robust_plots import draw

    for path in draw(out, folder):
        click.echo(path)


if __name__ == "__main__":
    main()
