"""`dasksvm predict` and `dasksvm evaluate`."""

import time
from typing import Any

import click

from dasksvm.cli.options import LocalPath, as_json, cluster_client, cluster_options, data_set
from dasksvm.cli.output import Bars, echo_json, error_facts, print_errors


@click.command()
@click.argument("data", type=LocalPath(exists=True, file_okay=False))
@click.argument("model", type=LocalPath(exists=True, dir_okay=False))
@click.argument("out", type=LocalPath())
@cluster_options
@as_json
def predict(
    data: str,
    model: str,
    out: str,
    workers: int | None,
    scheduler: str | None,
    scheduler_file: str | None,
    as_json: bool,
) -> None:
    """Write the predictions of MODEL for DATA to OUT.

    OUT is a new .csv or .parquet file, or a new .zarr group. The columns are the row number in the source, the predicted
    label and the decision values. The rows are in the order of the source if their predictions fit in memory, otherwise in
    the order of DATA; the last line of the output says which.
    """
    from dasksvm import load
    from dasksvm.model.prediction_files import SUFFIXES, write

    if not out.endswith(SUFFIXES):
        raise click.UsageError(f"OUT must end with {', '.join(SUFFIXES)}. Got {out!r} instead.")
    found, trained = data_set(data), load(model)
    start = time.perf_counter()
    with cluster_client(workers, scheduler, scheduler_file) as client, Bars() as bars:
        written = write(trained, found, out, threads=_threads(client), watch=bars)
    seconds = time.perf_counter() - start
    order = "source" if written.sorted else "stored"
    if as_json:
        about: dict[str, Any] = {"data": data, "model": model, "out": out, "seconds": seconds, "rows": len(found)}
        echo_json(about | {"order": order, "classes": trained.classes, "counts": written.counts})
    else:
        ordered_as = "the source" if written.sorted else data
        click.echo(f"wrote {out}: {len(found):,} rows in the order of {ordered_as}, in {seconds:.1f} s")


def _threads(client: Any) -> int:
    """Return the number of threads of a cluster; 0 without one."""
    return 0 if client is None else sum(client.nthreads().values())


@click.command()
@click.argument("data", type=LocalPath(exists=True, file_okay=False))
@click.argument("model", type=LocalPath(exists=True, dir_okay=False))
@cluster_options
@as_json
def evaluate(
    data: str, model: str, workers: int | None, scheduler: str | None, scheduler_file: str | None, as_json: bool
) -> None:
    """Compare the predictions of MODEL with the labels of DATA."""
    from dasksvm import load

    found, trained = data_set(data), load(model)
    with cluster_client(workers, scheduler, scheduler_file) as client, Bars() as bars:
        facts = error_facts(trained, found, threads=_threads(client), watch=bars)
    if as_json:
        echo_json({"data": data, "model": model} | facts)
    else:
        print_errors(facts)
