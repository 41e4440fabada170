"""Training in blocks on more workers and more examples than this machine has, by simulation.

The model is fed with costs that are measured in isolation, and with counts of runs without a cluster; docs/scale.md explains it.

`python -m pipelines.scale costs`, `... trace --task forest-50000` for several sizes and settings, `... validate --task
forest-50000`, `... sweep`, then `... plot`
"""

import itertools
import json
import os
import statistics
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from distributed import Client

from dasksvm import LaSVC
from dasksvm.runtime import local_cluster
from dasksvm.solver.blocks.keeping import can_keep
from dasksvm.solver.kernels.features import DenseFeatures
from dasksvm.solver.kernels.kernel import Kernel
from pipelines.cluster import fit, stored
from pipelines.rows import environment, read_rows, write
from pipelines.scale_costs import Costs, measure_costs
from pipelines.scale_simulation import Cluster, Outcome, simulate
from pipelines.scale_trace import Shape, Trace, default_shape, trace_of
from pipelines.scale_workload import Workload
from pipelines.tasks import load

COSTS, VALIDATED, SWEPT = "costs.jsonl", "validate.jsonl", "sweep.jsonl"

folder_option = click.option(
    "--folder", type=click.Path(path_type=Path), default=Path("runs/scale"), show_default=True, help="For all results."
)
data_option = click.option("--data", type=click.Path(path_type=Path), default=Path("../shared/data"), show_default=True)
store_option = click.option("--store", type=click.Path(path_type=Path), default=Path("runs/zarr"), show_default=True)


def numbers(text: str) -> list[int]:
    """Read a list of numbers, which may be written as 1e6."""
    return [int(float(word)) for word in text.split(",")]


def results(path: Path) -> list[dict[str, Any]]:
    """Read the rows that another command has written."""
    if not path.exists():
        raise click.UsageError(
            f"{path} does not exist: it has the results of another command, which must be run first."
        )
    return read_rows(path)


def read_costs(folder: Path) -> Costs:
    """Read the costs that were measured last."""
    return Costs.of_json(results(folder / COSTS)[-1]["costs"])


def trace_path(folder: Path, task: str, shape: Shape) -> Path:
    """Return where the trace of a task is written."""
    return folder / f"trace-{task}-{shape.batch}-{shape.working_set}-{shape.lookahead}.json"


def read_traces(folder: Path, task: str) -> list[Trace]:
    """Read all traces of a task, whatever its number of rows."""
    paths = sorted(folder.glob(f"trace-{task}-*.json"))
    return [Trace.of_json(row) for path in paths for row in results(path)]


@click.group()
def main() -> None:
    """Simulate training in blocks on clusters, from measured costs and traced counts."""


@main.command()
@click.option("--widths", default="54,384,784", show_default=True, help="Numbers of features.")
@folder_option
def costs(widths: str, folder: Path) -> None:
    """Measure all costs in isolation."""
    found = measure_costs(numbers(widths))
    write(folder / COSTS, {"costs": found.as_json()} | environment())
    click.echo(json.dumps(found.as_json(), indent=2))


@main.command()
@click.option(
    "--task", default="forest-50000", show_default=True, help="A task of two classes, with -N for its first N rows."
)
@click.option("--batch", type=int, help="Examples between two rounds.  [default: that of LaSVC]")
@click.option("--working-set", type=int, help="Members that a round chooses.  [default: that of LaSVC]")
@click.option("--lookahead", type=int, help="Pieces of batches in flight.  [default: dasksvm.lookahead]")
@folder_option
@data_option
@store_option
def trace(
    task: str, batch: int | None, working_set: int | None, lookahead: int | None, folder: Path, data: Path, store: Path
) -> None:
    """Train on a task without a cluster, and write the counts of the run."""
    zarr, parameters = stored(load(task, data), store)
    given = {"batch": batch, "working_set": working_set, "lookahead": lookahead}
    shape = replace(default_shape(), **{name: value for name, value in given.items() if value is not None})
    found = trace_of(task, zarr, parameters, shape)
    path = trace_path(folder, task, shape)
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found.as_json()) + "\n")
    evaluations = sum(step.evaluations for step in found.steps)
    click.echo(f"{path}: {len(found.steps)} steps, {evaluations:,} kernel values")


@main.command()
@click.option("--task", default="forest-50000", show_default=True)
@click.option("--workers", default="1,2", show_default=True)
@click.option("--coordinator-threads", default=2, show_default=True)
@click.option("--repeats", default=1, show_default=True, help="Runs of each cluster, after one that is not measured.")
@folder_option
@data_option
@store_option
def validate(
    task: str, workers: str, coordinator_threads: int, repeats: int, folder: Path, data: Path, store: Path
) -> None:
    """Compare simulated runs with runs on clusters of this machine; needs `costs`, and a `trace` with LaSVC's settings."""
    measured = read_costs(folder)
    zarr, parameters = stored(load(task, data), store)
    estimator = LaSVC(C=parameters["C"], gamma=parameters["gamma"], engine="blocks", random_state=0)
    (traced,) = (Trace.of_json(row) for row in results(trace_path(folder, task, default_shape())))
    for count in numbers(workers):
        simulated = simulate(traced, measured, Cluster(count, coordinator_threads, measured.cores))
        with (
            local_cluster(count, coordinator_threads=coordinator_threads) as cluster,
            Client(cluster, direct_to_workers=True) as client,
        ):
            rows = [fit(zarr, estimator, client) for _ in range(repeats + 1)][1:]
        seconds = statistics.median(row["seconds"] for row in rows)
        row = {
            "task": task,
            "workers": count,
            "coordinator_threads": coordinator_threads,
            "predicted": simulated.seconds,
            "measured": seconds,
            "ratio": simulated.seconds / seconds,
            "simulated": simulated.as_json(),
            "runs": rows,
            "traced_evaluations": sum(step.evaluations for step in traced.steps),
        }
        write(folder / VALIDATED, row | environment())
        click.echo(
            f"{task}, {count} workers: predicted {simulated.seconds:.2f} s, measured {seconds:.2f} s, {row['ratio']:.3f}"
        )


@main.command()
@click.option("--tasks", default="forest,mnist8", show_default=True, help="Tasks with traces of several sizes.")
@click.option("--widths", default="54,384,784", show_default=True)
@click.option("--examples", default="1e5,1e6,1e7,1e8", show_default=True)
@click.option("--workers", default="4,16,64,256", show_default=True)
@click.option("--batches", default="2000,8000,32000", show_default=True)
@click.option("--working-sets", default="1024,4096,16384", show_default=True)
@click.option("--lookaheads", default="8,64", show_default=True)
@folder_option
def sweep(
    tasks: str,
    widths: str,
    examples: str,
    workers: str,
    batches: str,
    working_sets: str,
    lookaheads: str,
    folder: Path,
) -> None:
    """Simulate larger runs on clusters of machines, each with the settings that are best for it; needs `costs` and traces.

    Rows of a width are those of the first task whose values are kept if values of that width are. A setting in which the traces
    of a task do not differ keeps its value.
    """
    measured = read_costs(folder)
    traced = {task: read_traces(folder, task) for task in tasks.split(",")}
    for width in numbers(widths):
        expensive = is_expensive(width)
        task = next(
            (name for name, found in traced.items() if found and is_expensive(found[0].width) == expensive), None
        )
        if task is None:
            raise click.UsageError(f"there are no traces that fit rows with {width} features: run `trace` first.")
        workload = Workload.of(traced[task])
        shapes = shapes_to_try(workload, numbers(batches), numbers(working_sets), numbers(lookaheads))
        for count, number in itertools.product(numbers(examples), numbers(workers)):
            cluster = Cluster(number)
            tried = [
                (simulate(workload.trace(count, width, shape, expensive), measured, cluster), shape) for shape in shapes
            ]
            outcome, shape = min(tried, key=lambda pair: pair[0].seconds)
            usual = next((each.seconds for each, of in tried if of == default_shape()), None)
            about = {"task": task, "width": width, "examples": count, "workers": number}
            row = about | asdict(shape) | outcome.as_json() | {"seconds_with_defaults": usual}
            write(folder / SWEPT, row | environment())
            click.echo(describe(about, shape, outcome))


def is_expensive(width: int) -> bool:
    """Return whether kernel values of rows of a width are kept."""
    return can_keep(Kernel("rbf"), DenseFeatures.of(np.zeros((1, width), np.float32)))


def shapes_to_try(workload: Workload, *wanted: list[int]) -> list[Shape]:
    """Return all combinations of the wanted settings; those in which the traces do not differ keep their values."""
    known = [set(values) for values in zip(*(astuple(shape) for shape in workload.shapes), strict=True)]
    choices = [values if len(found) > 1 else sorted(found) for values, found in zip(wanted, known, strict=True)]
    return [Shape(*values) for values in itertools.product(*choices)]


def describe(about: dict[str, Any], shape: Shape, outcome: Outcome) -> str:
    """Describe a simulated run in a line."""
    return (
        f"d={about['width']:4} n={about['examples']:.0e} {about['workers']:4} workers: {outcome.seconds:12.1f} s with "
        f"B={shape.batch} W={shape.working_set} L={shape.lookahead}; coordinator computes {outcome.busy:.0%}, its link sends "
        f"{outcome.sending:.0%}, scheduler {outcome.scheduling:.0%}, workers compute {outcome.working:.0%} of the time"
    )


@main.command()
@click.option(
    "--picture",
    type=click.Path(path_type=Path),
    default=Path("docs/scale.svg"),
    show_default=True,
    help="File to write.",
)
@folder_option
def plot(picture: Path, folder: Path) -> None:
    """Plot the rows of `sweep`."""
    from pipelines.scale_plots import draw

    draw(results(folder / SWEPT), picture)
    click.echo(picture)


if __name__ == "__main__":
    os.environ.setdefault("DASK_DISTRIBUTED__LOGGING__DISTRIBUTED", "warning")
    main()
