"""Working set selections of the two-variable solver, and blocks: tables 2, 4, 5, 6, 7 and figures 6, 7 of paper 4.

`python -m pipelines.decomposition table --task letter-A`, `... table --task mnist-04 --rows 5000 --no-shrinking`,
`... cache --task letter-A`, `... rows --task satimage-damp`, `... grid --task adult --rows 1000`, `... blocks --task adult`,
then `... report` and `... plot`. Of the paper's tasks only MNIST is among the data. All fits share one process, because steps and
kernel rows are compared; use the seconds only for ratios.
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from dasksvm.data.coding import Coding
from dasksvm.data.sources import Examples
from dasksvm.estimators._fitting import SharedSettings
from dasksvm.estimators.smosvc import SMOSVC
from dasksvm.model.kernel_model import KernelModel
from dasksvm.solver.decomposition.pair_learner import PairLearner
from dasksvm.solver.decomposition.rules import PairSettings
from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.state.row_cache import LEAST_ROWS, PAD, PAGE, blocks_of
from pipelines.compare import dual
from pipelines.decomposition_paper import read, told_rows
from pipelines.rows import environment, timed, write
from pipelines.tasks import Task, load

Command = Callable[..., Any]
WARM = 300
VALUE = np.dtype(np.float32).itemsize
# Table 6, one row; tables 2 and 7, two; table 7, the whole cache.
SEARCHED = (2, 1, 0)
MEGABYTE = 1 << 20


@click.group()
def main() -> None:
    """Compare ways to select pairs and blocks."""


def common(command: Command) -> Command:
    """Add the options that all commands share: what to solve, and where to write the rows."""
    options = (
        click.option("--task", "name", default="letter-A", show_default=True),
        click.option("--rows", "count", type=int, default=0, help="Number of training rows; 0: all."),
        click.option(
            "--selections",
            default="mvp,second-order,hmg",
            show_default=True,
            help="Selections to compare; mg is available too.",
        ),
        click.option(
            "--orders",
            default=10,
            show_default=True,
            help="Number of seeds, each of which sets the order of the examples and the first pair.",
        ),
        click.option("--tol", default=1e-3, show_default=True),
        click.option("--stop", type=click.Choice(["kkt", "gain"]), default="kkt", show_default=True),
        click.option("--shrinking/--no-shrinking", default=True, show_default=True),
        click.option("--dtype", type=click.Choice(["float32", "float64"]), default="float32", show_default=True),
        click.option("--max-iter", default=-1, show_default=True),
        click.option("--cost", type=float, help="Override the C of the task."),
        click.option("--gamma", type=float, help="Override the γ of the task."),
        click.option("--data", type=click.Path(path_type=Path), default=Path("../shared/data"), show_default=True),
        click.option(
            "--out", type=click.Path(path_type=Path), default=Path("runs/decomposition.jsonl"), show_default=True
        ),
    )
    return reduce(lambda made, option: option(made), reversed(options), command)


cache_option = click.option(
    "--cache-share",
    default=0.01,
    show_default=True,
    help="Size of the cache as a share of the kernel matrix in float32.",
)


class Studied(SMOSVC):
    """An SMOSVC that can search other rows for the maximum gain, and keeps the counters of its learner."""

    searched = 2

    def _settings(self, shared: SharedSettings, shape: tuple[int, int], coding: Coding) -> Settings:
        settings = super()._settings(shared, shape, coding)
        if not isinstance(settings, PairSettings):
            return settings
        return replace(settings, rules=settings.rules._replace(rows=self.searched))

    def _store_state(self, learner: Learner, examples: Examples) -> None:
        super()._store_state(learner, examples)
        self.converged_, self.stuck_, self.missed_ = bool(learner.converged), False, None
        if isinstance(learner, PairLearner):
            self.stuck_, self.missed_ = learner.stuck, sum(now.computed for now in learner.finishing)


def task_of(name: str, count: int, data: Path, options: dict[str, Any]) -> Task:
    """Load a task, or its first rows; C and γ can be overridden by the options."""
    task = load(f"{name}-{count}" if count else name, data)
    given = {"C": options.pop("cost"), "gamma": options.pop("gamma")}
    return replace(task, parameters=task.parameters | {name: value for name, value in given.items() if value})


def cache_of(share: float, rows: int) -> int:
    """Return the size in bytes of a share of a kernel matrix of float32 values, at least two rows."""
    return VALUE * max(round(share * rows**2), 2 * rows)


def rows_kept(cache_bytes: int, rows: int, width: int) -> int:
    """Return how many rows of values of `width` bytes the cache keeps, given its pages and its least number of rows."""
    pages = max(cache_bytes // ((PAGE + PAD) * width), LEAST_ROWS * blocks_of(rows))
    return min(pages // blocks_of(rows), rows)


def violation(task: Task, support: Any, coefficients: Any) -> float:
    """Compute δ = g_max - g_min (paper 1, equation 10) over the whole training set in float64, independently of the solver."""
    X = np.asarray(task.X, np.float64)
    kernel = Kernel("rbf", task.parameters["gamma"])
    model = KernelModel(kernel, X[support], coefficients.reshape(1, -1), np.zeros(1), np.unique(task.y))
    sign = np.where(task.y > 0, 1.0, -1.0)
    alpha = np.zeros(len(sign))
    alpha[support] = coefficients.ravel()
    g, box = sign - model.decision_function(X)[:, 0], task.parameters["C"] * sign
    rising, falling = alpha < np.maximum(box, 0.0), alpha > np.minimum(box, 0.0)
    return float(g[rising].max() - g[falling].min())


def fitted(task: Task, seed: int, cache_bytes: int, searched: int = 2, **options: Any) -> dict[str, Any]:
    """Fit once; return the cost and the result as a row."""
    parameters: dict[str, Any] = dict(task.parameters)
    model = Studied(**parameters, cache_size=cache_bytes / MEGABYTE, random_state=seed, **options)
    model.searched = searched
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        _, cost = timed(lambda: model.fit(task.X, task.y))
    rows, bounded = len(task.y), np.abs(model.dual_coef_) >= task.parameters["C"]
    return {
        "task": task.name,
        "examples": rows,
        "seed": seed,
        "selection": model.working_set,
        "searched": searched,
        "parameters": task.parameters,
        "cache_bytes": cache_bytes,
        "cache_rows": rows_kept(cache_bytes, rows, np.dtype(model.dtype).itemsize),
        **options,
        "iterations": model.n_iter_,
        "kernel_evaluations": model.kernel_evaluations_,
        "kernel_rows": model.kernel_evaluations_ / rows,
        "missed": model.missed_,
        "seconds": cost["seconds"],
        "cpu_seconds": cost["cpu_seconds"],
        "dual": dual(model, task),
        "delta": violation(task, model.support_, model.dual_coef_),
        "converged": model.converged_,
        "stuck": model.stuck_,
        "support_share": len(model.support_) / rows,
        "bounded_share": float(np.sum(bounded)) / rows,
    }


def warmed(task: Task, options: dict[str, Any]) -> None:
    """Compile everything that a fit with these options needs."""
    few = np.concatenate([np.flatnonzero(task.y == label)[: WARM // 2] for label in np.unique(task.y)])
    small = replace(task, X=task.X[few], y=task.y[few])
    fitted(small, 0, cache_of(0.1, len(few)), **(options | {"max_iter": 500}))


def keep(out: Path, study: str, row: dict[str, Any]) -> dict[str, Any]:
    """Append a row of a study to the file, and print a line about it."""
    row = {"pipeline": "decomposition", "study": study} | row
    write(out, row | environment())
    click.echo(
        f"{row['task']} {row['seed']} {row['selection']:12} {row['iterations']:8} steps {row['kernel_rows']:10.1f} rows "
        f"{row['seconds']:7.2f} s  dual {row['dual']:.6f}  δ {row['delta']:.5f}{'' if row['converged'] else '  no end'}"
    )
    return row


def solved_in_pairs(
    study: str, out: Path, stop: str, options: dict[str, Any], runs: Iterable[tuple[Task, int, str, float, int]]
) -> None:
    """Solve tasks in pairs, and print the medians; a run has a task, a seed, a selection, a share of cache, and rows to search.

    Only maximum gain can stop by its step, as in the paper.
    """
    rows, warm = [], set()
    for task, seed, each, share, searched in runs:
        own = {"working_set": each, "working_set_size": 2, "stop": stop if each in ("mg", "hmg") else "kkt"}
        if each not in warm:
            warmed(task, options | own)
            warm.add(each)
        row = fitted(task, seed, cache_of(share, len(task.y)), searched, **options, **own)
        rows.append(keep(out, study, row | {"cache_share": share}))
    told_rows(rows)


@main.command()
@common
@cache_option
def table(
    name: str,
    count: int,
    selections: str,
    orders: int,
    stop: str,
    data: Path,
    out: Path,
    cache_share: float,
    **more: Any,
) -> None:
    """Solve with each selection for several orders of the examples (tables 2 and 4)."""
    task = task_of(name, count, data, more)
    runs = ((task, seed, each, cache_share, 2) for seed in range(orders) for each in selections.split(","))
    solved_in_pairs("table", out, stop, more, runs)


@main.command()
@common
@click.option("--shares", default="0.005,0.01,0.03,0.06,0.2", show_default=True)
def cache(
    name: str, count: int, selections: str, orders: int, stop: str, data: Path, out: Path, shares: str, **more: Any
) -> None:
    """Solve with caches of several sizes (table 5 and figure 7)."""
    task = task_of(name, count, data, more)
    all_runs = product(range(orders), map(float, shares.split(",")), selections.split(","))
    solved_in_pairs("cache", out, stop, more, ((task, seed, each, share, 2) for seed, share, each in all_runs))


@main.command("rows")
@common
@cache_option
def searched_rows(
    name: str,
    count: int,
    selections: str,
    orders: int,
    stop: str,
    data: Path,
    out: Path,
    cache_share: float,
    **more: Any,
) -> None:
    """Search one row, two rows and the whole cache for the maximum gain; always uses HMG (tables 6 and 7)."""
    task = task_of(name, count, data, more)
    runs = ((task, seed, "hmg", cache_share, searched) for seed in range(orders) for searched in SEARCHED)
    solved_in_pairs("rows", out, stop, more, runs)


@main.command()
@common
@cache_option
@click.option("--points", default=5, show_default=True, help="Number of values of C, and of γ.")
@click.option("--factor", default=1e4, show_default=True, help="Ratio of the largest to the smallest value.")
def grid(
    name: str,
    count: int,
    selections: str,
    orders: int,
    stop: str,
    data: Path,
    out: Path,
    cache_share: float,
    points: int,
    factor: float,
    **more: Any,
) -> None:
    """Vary C and γ around the values of the task (figure 6)."""
    task, around = task_of(name, count, data, more), np.geomspace(factor**-0.5, factor**0.5, points)
    costs, widths = (float(task.parameters[each]) * around for each in ("C", "gamma"))
    runs = (
        (replace(task, parameters={"C": float(C), "gamma": float(gamma)}), seed, each, cache_share, 2)
        for seed, C, gamma, each in product(range(orders), costs, widths, selections.split(","))
    )
    solved_in_pairs("grid", out, stop, more, runs)


@main.command()
@common
@click.option("--sizes", default="256,512,1024,2048", show_default=True)
@click.option("--cache-size", default=1000.0, show_default=True, help="Kernel cache in MB.")
def blocks(
    name: str,
    count: int,
    selections: str,
    orders: int,
    stop: str,
    data: Path,
    out: Path,
    sizes: str,
    cache_size: float,
    **more: Any,
) -> None:
    """Solve in blocks, and compare the dual with LIBSVM's. Blocks have their own stopping rule: `--stop` has no effect."""
    task, rows = task_of(name, count, data, more), []
    peer, cost = timed(lambda: SVC(**task.parameters, tol=1e-6, cache_size=cache_size).fit(task.X, task.y))
    optimum = dual(peer, task)
    click.echo(f"{task.name}, {len(task.y)} rows: LIBSVM's dual {optimum:.9g} in {cost['seconds']:.2f} s")
    warmed(task, more)
    for seed, each, size in product(range(orders), selections.split(","), map(int, sizes.split(","))):
        values = more | {"working_set": each, "working_set_size": size}
        row = fitted(task, seed, round(cache_size * MEGABYTE), **values)
        row |= {"libsvm": optimum, "short": (optimum - row["dual"]) / optimum, "libsvm_seconds": cost["seconds"]}
        rows.append(keep(out, "blocks", row))
    told_rows(rows)


@main.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs/decomposition.jsonl"), show_default=True)
def report(out: Path) -> None:
    """Print the medians of all rows of a file next to the values of the paper."""
    told_rows(read(out))


@main.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs/decomposition.jsonl"), show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), default=Path("runs/figures"), show_default=True)
def plot(out: Path, folder: Path) -> None:
    """Draw figures 6 and 7."""
    from pipelines.decomposition_plots import draw

    for path in draw(out, folder):
        click.echo(path)


if __name__ == "__main__":
    main()
