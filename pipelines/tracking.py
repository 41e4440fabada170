"""Tracking the optimum, as in section 6 of paper 3: its figures 2 to 6 as JSON rows and plots.

`python -m pipelines.tracking gaps --task adult`, `... gaps --task adult --algorithms one --teacher active --steps 10,100`,
`... errors --task mnist8 --teachers random`, `... errors --task mnist8 --algorithms one --teachers active --examples 5000`,
then `... report` and `... plot`. Each run has its own process.
"""

import json
import subprocess
import sys
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import click
import dask.config
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import curve_fit

from dasksvm import HeldOut, TrackingSVC, config, train
from dasksvm.estimators.problem import read_problem
from dasksvm.solver.engine.preview import Finished
from dasksvm.solver.engine.selection import RandomOrder
from dasksvm.solver.messages import Progress
from dasksvm.solver.unbiased.batch_ascent import AscentLearner
from dasksvm.training.local_executor import LocalExecutor
from pipelines.rows import environment, read_rows, timed, write
from pipelines.tasks import Task, load

# Table 1 of the paper; the slips of its README.
PARAMETERS = {"adult": {"C": 1.0, "gamma": 0.005}, "mnist8": {"C": 1000.0, "gamma": 0.005}}
# Of the mean normalised gap as a·K^b: figure 4 has K = 0.709 / gap^1.043.
PAPER = {"a": 0.709 ** (1 / 1.043), "b": -1 / 1.043}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "one": {"gradients": "all", "process": False},
    "two": {"gradients": "all", "process": True},
    "support": {"gradients": "support"},
    "batch": {"solver": "batch"},
}
# Values of a point of a curve.
KEPT = (
    "seen",
    "gap",
    "mean_gap",
    "bound",
    "kernel_evaluations",
    "support_vectors",
    "dual",
    "error",
    "picks",
    "seconds",
)
# Points of a curve, and the factor in kernel values between two of the batch solver's.
POINTS, FURTHER = 300, 1.3
# Number of sections over which a gap is averaged, and the share of a pass that its trend leaves out.
STRETCHES, BEGINNING = 40, 0.1
data_option = click.option("--data", type=click.Path(path_type=Path), default=Path("../shared/data"), show_default=True)
out_option = click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runs/tracking.jsonl"), show_default=True
)
task_option = click.option("--task", default="adult", show_default=True, help="adult, mnist8, or NAME-N for N rows.")
runs_option = click.option(
    "--runs", default=1, show_default=True, help="Number of orders of the examples; the paper has 10."
)
cache_option = click.option(
    "--cache-size", default=1000.0, show_default=True, help="Kernel cache in MB; the paper has 512."
)
teacher_option = click.option("--teacher", default="random", show_default=True, help="random or active.")
examples_option = click.option(
    "--examples", type=int, default=0, help="Largest number of examples for algorithms 1 and 2; 0: a whole pass."
)
exact_option = click.option(
    "--exact/--batched", default=False, show_default=True, help="Select examples one by one, as in the paper."
)


@click.group()
def main() -> None:
    """Measure how closely online solvers track the optimum."""


@main.command()
@task_option
@click.option("--algorithms", default="one,two", show_default=True)
@click.option(
    "--steps", default="2,3,5,10,20,30,50,100", show_default=True, help="Values of K, the steps after each example."
)
@teacher_option
@examples_option
@exact_option
@runs_option
@cache_option
@data_option
@out_option
def gaps(
    task: str,
    algorithms: str,
    steps: str,
    teacher: str,
    examples: int,
    exact: bool,
    runs: int,
    cache_size: float,
    data: Path,
    out: Path,
) -> None:
    """Record the normalised gap over the examples (figures 2 to 4)."""
    about = {
        "task": task,
        "examples": examples,
        "exact": exact,
        "cache_size": cache_size,
        "data": data,
        "every": 0,
        "teacher": teacher,
    }
    for seed, algorithm, count in product(range(runs), algorithms.split(","), steps.split(",")):
        _alone(out, "gaps", about | {"seed": seed, "algorithm": algorithm, "steps": count})


@main.command()
@task_option
@click.option("--algorithms", default="one,batch", show_default=True)
@click.option("--steps", default="10,100", show_default=True, help="Values of K, the steps after each example.")
@click.option("--teachers", default="random,active", show_default=True)
@click.option("--every", default=1000, show_default=True, help="Examples between two evaluations.")
@examples_option
@exact_option
@runs_option
@cache_option
@data_option
@out_option
def errors(
    task: str,
    algorithms: str,
    steps: str,
    teachers: str,
    every: int,
    examples: int,
    exact: bool,
    runs: int,
    cache_size: float,
    data: Path,
    out: Path,
) -> None:
    """Record the test error over examples and kernel values (figures 5 and 6)."""
    about = {"task": task, "examples": examples, "exact": exact, "cache_size": cache_size, "data": data, "every": every}
    for seed, algorithm, count, teacher in product(
        range(runs), algorithms.split(","), steps.split(","), teachers.split(",")
    ):
        if algorithm != "batch" or teacher == "random":
            _alone(out, "errors", about | {"seed": seed, "algorithm": algorithm, "steps": count, "teacher": teacher})


def _alone(out: Path, pipeline: str, values: dict[str, Any]) -> None:
    """Make one run in its own process, and write its row."""
    flags = ["--exact" if values.pop("exact") else "--batched"]
    named = [part for name, value in values.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    line = [sys.executable, "-m", "pipelines.tracking", "one", *named, *flags]
    result = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True)
    row = {"pipeline": pipeline} | json.loads(result.stdout.splitlines()[-1])
    write(out, row)
    click.echo(_line(row))


@main.command(hidden=True)
@task_option
@click.option("--algorithm", required=True)
@click.option("--steps", type=int, required=True)
@teacher_option
@examples_option
@exact_option
@click.option("--seed", type=int, required=True)
@click.option("--every", type=int, required=True)
@cache_option
@data_option
def one(
    task: str,
    algorithm: str,
    steps: int,
    teacher: str,
    examples: int,
    exact: bool,
    seed: int,
    every: int,
    cache_size: float,
    data: Path,
) -> None:
    """Make one run, and print its row."""
    found = load(task, data)
    options = PARAMETERS[found.name] | ALGORITHMS[algorithm]
    options |= {"steps": steps, "selection": teacher, "cache_size": cache_size, "random_state": seed}
    model = TrackingSVC(**options, max_examples=None if algorithm == "batch" else examples or None)
    about = {"task": task, "algorithm": algorithm, "steps": steps, "teacher": teacher, "exact": exact, "seed": seed}
    with dask.config.set({"dasksvm.exact-selection": exact}):
        TrackingSVC(**options).fit(found.X[:500], found.y[:500])
        (curve, figures), cost = timed(lambda: _followed(model, found, every))
    row = about | {"cache_size": cache_size} | PARAMETERS[found.name] | cost | figures
    click.echo(json.dumps(row | {"curve": curve} | environment()))


def _followed(model: TrackingSVC, task: Task, every: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Train; return the curve of the gap, or of the error if it is evaluated, and the figures at the end."""
    if model.solver == "batch":
        curve = _batch_errors(model, task)
        return curve, curve[-1] | {"error_percent": 100 * curve[-1]["error"]}
    watched = [HeldOut(task.X_test, task.y_test, every=every)] if every else []
    run = train((task.X, task.y), model, callbacks=watched)
    model = run.estimator
    entries = watched[0].entries if every else [entry for entry in run.history if entry["phase"] == "online"]
    step = 1 if every else max(len(entries) // POINTS, 1)
    curve = [{key: entry[key] for key in KEPT if key in entry} for entry in entries[::step]]
    figures = {key: run.history[-1][key] for key in KEPT if key in run.history[-1]}
    return curve, figures | {"error_percent": 100 * (1 - model.score(task.X_test, task.y_test)), "made": model.n_iter_}


def _batch_errors(model: TrackingSVC, task: Task) -> list[dict[str, Any]]:
    """Train by batch ascent, and evaluate the error during it, which callbacks cannot do."""
    problem = read_problem(model, task.X, task.y, None, reset=True)
    learner, examples, seed = model._prepare(problem, model._coding(problem), 1)
    assert isinstance(learner, AscentLearner)
    learner.feed(RandomOrder(examples.source.chunks, seed), np.zeros(0, np.int64))
    curve: list[dict[str, Any]] = []

    def look(progress: Progress, seconds: float) -> bool:
        due = FURTHER * curve[-1]["kernel_evaluations"] if curve else 1
        if learner.finishing and (progress.evaluations >= due or progress.phase == "done"):
            s, alpha = learner.expansion, learner.finishing[-1].alpha[None]
            at = s.support(alpha)
            shown = Finished(
                progress,
                alpha[:, at],
                s.members().take(s.working.slot[at]),
                s.code[at],
                s.example[at],
                np.zeros((1, 2)),
            )
            wrong = model._model(learner.settings.kernel, examples.form, shown).predict(task.X_test) != task.y_test
            entry = progress.as_dict() | {"error": float(np.mean(wrong)), "picks": learner.finishing[-1].done}
            curve.append({key: entry[key] for key in KEPT if key in entry})
        return False

    LocalExecutor(learner, examples, config.threads()).run(look)
    return curve


def _line(row: dict[str, Any]) -> str:
    gap = f"mean gap {row['mean_gap']:.4f}" if "mean_gap" in row else f"gap {row['gap']:.4f}"
    bound = f" (bound {row['bound']:.3f})" if "bound" in row else ""
    values, took = row["kernel_evaluations"] / 1e6, f"{row['seconds']:.1f} s  {row['peak_mb']:.0f} MB"
    who = f"{row['task']:10} {row['algorithm']:7} K {row['steps']:3} {row['teacher']:6}"
    return f"{who} {gap}{bound}  {row['error_percent']:.2f} %  {values:.0f} M values  {took}"


def stretches(curve: list[dict[str, Any]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean gap over sections of a pass, and where they end; the gap itself changes much with single examples."""
    seen = np.array([0, *(entry["seen"] for entry in curve)])
    total = np.array([0.0, *(entry["mean_gap"] * entry["seen"] for entry in curve)])
    at = np.unique(np.searchsorted(seen, np.linspace(0, seen[-1], STRETCHES + 1)))
    return seen[at[1:]], np.diff(total[at]) / np.diff(seen[at])


def trend(curve: list[dict[str, Any]]) -> float:
    """Return the exponent b of gap = a·t^b over a pass, without its beginning; 0 is flat."""
    seen, gap = stretches(curve)
    late = seen > BEGINNING * seen[-1]
    return float(np.polyfit(np.log(seen[late]), np.log(gap[late]), 1)[0])


def power(rows: Iterable[dict[str, Any]]) -> tuple[float, float]:
    """Return a and b of mean gap = a·K^b, fitted to the logarithms."""
    points = np.log([(row["steps"], row["mean_gap"]) for row in rows])
    slope, offset = np.polyfit(points[:, 0], points[:, 1], 1)
    return float(np.exp(offset)), float(slope)


def inverse_power(rows: Iterable[dict[str, Any]]) -> float:
    """Return b of the same from a fit of K = c·gap^d to K, as in figure 4; this gives large K more weight."""
    points = np.array([(row["mean_gap"], row["steps"]) for row in rows])
    (_, d), _ = curve_fit(lambda gap, c, d: c * gap**d, points[:, 0], points[:, 1], p0=(0.7, -1.0))
    return float(1.0 / d)


@main.command()
@out_option
def report(out: Path) -> None:
    """Print the means over the runs, the trends of the gaps, and how the gaps decrease with K."""
    rows = read_rows(out)
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["pipeline"], row["task"], row["algorithm"], row["teacher"]), []).append(row)
    for key, group in sorted(groups.items()):
        click.echo(" ".join(key))
        for steps in sorted({row["steps"] for row in group}):
            runs = [row for row in group if row["steps"] == steps]
            means = {
                name: np.mean([run[name] for run in runs])
                for name in ("gap", "mean_gap", "bound", "error_percent", "kernel_evaluations", "seconds")
                if name in runs[0]
            }
            flat = f"  trend t^{np.mean([trend(run['curve']) for run in runs]):+.2f}" if key[0] == "gaps" else ""
            click.echo(
                f"  K {steps:3}, {len(runs)} runs: " + ", ".join(f"{k} {v:.4g}" for k, v in means.items()) + flat
            )
        if key[0] == "gaps" and len({row["steps"] for row in group}) > 2:
            a, b = power(group)
            click.echo(f"  mean gap = {a:.3f} K^{b:.3f}, or K^{inverse_power(group):.3f} where K is fitted")
            click.echo(f"  the paper, algorithm 1 on adult: {PAPER['a']:.3f} K^{PAPER['b']:.3f}")


@main.command()
@out_option
@click.option("--folder", type=click.Path(path_type=Path), default=Path("runs/figures"), show_default=True)
def plot(out: Path, folder: Path) -> None:
    """Plot figures 2 to 6."""
    from pipelines.tracking_plots import draw

    for path in draw(out, folder):
        click.echo(path)


if __name__ == "__main__":
    main()
