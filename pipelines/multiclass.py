"""Multi-class tables and curves: tables 4.3, 4.4, 5.2 and 5.3 of paper 5, and one-vs-rest next to one-vs-one.

`python -m pipelines.multiclass table --task letter --machine llw`, `... curves --task letter --machine cs --cache-share 0.2`,
`... rest --task mnist`, then `... report` and `... plot`. Each run has its own process.
"""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from dasksvm import HeldOut, LaSVC, MulticlassSVC, ShiftingGridSearch, train
from pipelines.compare import make
from pipelines.multiclass_paper import PAPER, PARAMETERS
from pipelines.rows import environment, read_rows, timed, write
from pipelines.tasks import Task, load

# Parameters that differ between the runs of a table; PAPER has the names of the paper.
VARIANTS: dict[str, dict[str, Any]] = {
    "S2DO_ALL": {"working_set": "all"},
    "RANDOM_PATTERN_S2DO_ALL": {"working_set": "random-pattern"},
    "RANDOM_PATTERN_S2DO_PATTERN": {"working_set": "within-pattern"},
    "online x2": {"epochs": 2},
    "converged": {"epochs": "converged"},
    "fixed": {"schedule": "fixed"},
    "larank": {"solver": "larank"},
    "batch": {"solver": "batch"},
}
# The strategy of table 4.3 and of table 5.2.
STRATEGY = {"llw": "all", "cs": "random-pattern", "ww": "random-pattern"}
LOOKS = 30
data_option = click.option("--data", type=click.Path(path_type=Path), default=Path("../shared/data"), show_default=True)
task_option = click.option(
    "--task", default="letter", show_default=True, help="letter, mnist, satimage, digits, or NAME-N for N rows."
)
machine_option = click.option("--machine", type=click.Choice(list(STRATEGY)), default="llw", show_default=True)
cache_option = click.option(
    "--cache-size", default=3072.0, show_default=True, help="Kernel cache in MB; the paper has 3 GB."
)
out_option = click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runs/multiclass.jsonl"), show_default=True
)


@click.group()
def main() -> None:
    """Compare multi-class machines."""


def estimator(task: Task, machine: str, variant: str, seed: int, cache_size: float) -> MulticlassSVC:
    """Make the solver of a variant with the paper's parameters."""
    options = VARIANTS[variant]
    if "solver" not in options:
        options = {"working_set": STRATEGY[machine]} | options
    parameters = PARAMETERS[task.name][machine]
    return MulticlassSVC(machine=machine, **parameters, **options, cache_size=cache_size, random_state=seed)


@main.command()
@task_option
@machine_option
@click.option(
    "--variants", default="S2DO_ALL,RANDOM_PATTERN_S2DO_ALL,RANDOM_PATTERN_S2DO_PATTERN,batch", show_default=True
)
@click.option("--seed", default=0, show_default=True)
@cache_option
@data_option
@out_option
@click.option("--one", default=None, hidden=True)
def table(
    task: str, machine: str, variants: str, seed: int, cache_size: float, data: Path, out: Path, one: str | None
) -> None:
    """Train variants of a machine, and show error, dual, seconds and kernel values of each."""
    if one is None:
        for variant in variants.split(","):
            _alone("table", out, locals() | {"one": variant}, ("task", "machine", "seed", "cache_size", "data", "one"))
        return
    found = load(task, data)
    estimator(found, machine, one, seed, cache_size).fit(found.X[:500], found.y[:500])
    model, cost = timed(lambda: estimator(found, machine, one, seed, cache_size).fit(found.X, found.y))
    row = {
        "pipeline": "table",
        "task": task,
        "machine": machine,
        "variant": one,
        "seed": seed,
        "cache_size": cache_size,
    }
    click.echo(json.dumps(row | cost | _figures(model, found) | environment()))


@main.command()
@task_option
@click.option("--machines", default="llw,cs,rest", show_default=True)
@data_option
@out_option
def search(task: str, machines: str, data: Path, out: Path) -> None:
    """Search C and γ as in section 4.3.2; `PARAMETERS` has the results for satimage and digits."""
    found = load(task, data)
    for machine in machines.split(","):
        solver = LaSVC(random_state=0) if machine == "rest" else MulticlassSVC(machine=machine, random_state=0)
        looked = ShiftingGridSearch(solver, random_state=0, refit=False)
        _, cost = timed(partial(looked.fit, found.X, found.y))
        best = {"best": looked.best_params_, "score": looked.best_score_, "points": len(looked.cv_results_["params"])}
        row = {"pipeline": "search", "task": task, "machine": machine} | best | cost | environment()
        write(out, row)
        click.echo(f"{task:12} {machine:4} {best} {cost['seconds']:.1f} s")


@main.command()
@task_option
@machine_option
@click.option("--variants", default="S2DO_ALL,batch", show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--cache-share", default=1.2, show_default=True, help="Cache as a share of the kernel matrix (figures 4.4 and 4.5)."
)
@data_option
@out_option
@click.option("--one", default=None, hidden=True)
def curves(
    task: str, machine: str, variants: str, seed: int, cache_share: float, data: Path, out: Path, one: str | None
) -> None:
    """Record the dual and the test error over time and kernel values (figures 4.1 to 4.5 and 5.1 to 5.3)."""
    if one is None:
        for variant in variants.split(","):
            _alone(
                "curves", out, locals() | {"one": variant}, ("task", "machine", "seed", "cache_share", "data", "one")
            )
        return
    found = load(task, data)
    cache_size = cache_share * len(found.X) ** 2 * 4 / (1 << 20)
    estimator(found, machine, one, seed, cache_size).fit(found.X[:500], found.y[:500])
    watched = HeldOut(found.X_test, found.y_test, every=max(len(found.X) // LOOKS, 1))
    model = estimator(found, machine, one, seed, cache_size)
    run, cost = timed(lambda: train((found.X, found.y), model, callbacks=[watched]))
    row = {
        "pipeline": "curves",
        "task": task,
        "machine": machine,
        "variant": one,
        "seed": seed,
        "cache_share": cache_share,
    }
    step = max(len(run.history) // 300, 1)
    curve = [_point(entry) for at, entry in enumerate(run.history) if at % step == 0 or "error" in entry]
    click.echo(json.dumps(row | cost | _figures(run.estimator, found) | {"curve": curve} | environment()))


def _point(entry: dict[str, Any]) -> dict[str, Any]:
    kept = ("phase", "epoch", "seen", "seconds", "kernel_evaluations", "dual", "support_vectors", "error")
    return {key: entry[key] for key in kept if key in entry}


@main.command()
@task_option
@click.option("--solvers", default="lasvc,lasvc-ovo,sklearnex", show_default=True)
@click.option("--repeats", default=3, show_default=True)
@cache_option
@data_option
@out_option
@click.option("--one", default=None, hidden=True)
def rest(task: str, solvers: str, repeats: int, cache_size: float, data: Path, out: Path, one: str | None) -> None:
    """Train one-vs-rest, one-vs-one and a peer, and, as `separate`, each class against the rest separately."""
    if one is None:
        for _ in range(repeats):
            for solver in solvers.split(","):
                _alone("rest", out, locals() | {"one": solver}, ("task", "cache_size", "data", "one"))
        return
    found = load(task, data)
    task_of = Task(task, found.X, found.y, found.X_test, found.y_test, PARAMETERS[found.name]["rest"])

    def fit(count: int) -> Any:
        X, y = task_of.X[:count], task_of.y[:count]
        if one == "separate":
            return [make("lasvc", task_of, cache_size, 0).fit(X, y == label) for label in np.unique(y)]
        if one == "lasvc-ovo":
            return LaSVC(
                **task_of.parameters, decision_function_shape="ovo", cache_size=cache_size, random_state=0
            ).fit(X, y)
        return make(one, task_of, cache_size, 0).fit(X, y)

    fit(2000)
    model, cost = timed(lambda: fit(len(task_of.X)))
    if one == "separate":
        values = np.stack([each.decision_function(task_of.X_test) for each in model], axis=1)
        predicted = np.unique(task_of.y)[values.argmax(axis=1)]
        evaluations = sum(each.kernel_evaluations_ for each in model)
    else:
        predicted, evaluations = model.predict(task_of.X_test), getattr(model, "kernel_evaluations_", None)
    figures = {"error_percent": 100 * float(np.mean(predicted != task_of.y_test)), "kernel_evaluations": evaluations}
    row = {"pipeline": "rest", "task": task, "solver": one, "parameters": task_of.parameters, "cache_size": cache_size}
    click.echo(json.dumps(row | cost | figures | environment()))


def _figures(model: MulticlassSVC, task: Task) -> dict[str, Any]:
    return {
        "parameters": PARAMETERS[task.name][model.machine],
        "error_percent": 100 * (1 - model.score(task.X_test, task.y_test)),
        "dual": model.dual_objective_,
        "support_patterns": int(model.n_support_.sum()),
        "steps": model.n_iter_,
        "kernel_evaluations": model.kernel_evaluations_,
    }


def _alone(command: str, out: Path, values: dict[str, Any], names: tuple[str, ...]) -> None:
    """Run one variant in its own process, and write its row."""
    arguments = [part for name in names for part in (f"--{name.replace('_', '-')}", str(values[name]))]
    line = [sys.executable, "-m", "pipelines.multiclass", command, *arguments]
    result = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True)
    row = json.loads(result.stdout.splitlines()[-1])
    write(out, row)
    click.echo(_line(row))


def _line(row: dict[str, Any]) -> str:
    name = row.get("variant", row.get("solver"))
    dual = f"dual {row['dual']:14.2f}  " if "dual" in row else ""
    values = "" if row["kernel_evaluations"] is None else f"{row['kernel_evaluations'] / 1e6:10.1f} M values"
    return (
        f"{row['task']:9} {row.get('machine', ''):4} {name:28} {row['error_percent']:6.2f} %  {dual}"
        f"{row['seconds']:9.2f} s {values}  {row['peak_mb']:.0f} MB"
    )


@main.command()
@out_option
def report(out: Path) -> None:
    """Print the rows of the tables next to the values of the paper."""
    rows: list[Any] = read_rows(out)
    for row in rows:
        if row["pipeline"] in ("curves", "search"):
            continue
        click.echo(_line(row))
        known = PAPER.get((row["task"], row.get("machine"), row.get("variant")))
        if known is not None:
            error, dual, seconds, values = known
            click.echo(
                f"{'':15}{'the paper':28} {error:6.2f} %  dual {dual:14.2f}  {seconds:9.0f} s {values:10.1f} M values"
            )


@main.command()
@out_option
@click.option("--folder", type=click.Path(path_type=Path), default=Path("runs/figures"), show_default=True)
def plot(out: Path, folder: Path) -> None:
    """Plot the curves."""
    from pipelines.multiclass_plots import draw

    for path in draw(out, folder):
        click.echo(path)


if __name__ == "__main__":
    main()
