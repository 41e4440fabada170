"""`dasksvm ingest`."""

import time
from typing import Any

import click

from dasksvm.cli.options import LocalPath, as_json, cluster_client, cluster_options, seed_option
from dasksvm.cli.output import Bars, data_facts, echo_json, print_data
from dasksvm.data.ingest.readers.formats import FORMATS
from dasksvm.data.scales import SCALES


@click.command()
@click.argument("source", type=LocalPath())
@click.argument("data", type=click.Path())
@click.option("--label", help="Column of the labels, by name or number; for NPY a file, for NPZ an array.")
@click.option("--no-label", is_flag=True, help="The rows have no labels: DATA is a pool for `dasksvm label`.")
@click.option("--weight", help="Column of the weights, given in the same way as --label.")
@click.option("--format", type=click.Choice(list(FORMATS)), help="Format of SOURCE, if its name does not show it.")
@click.option(
    "--header/--no-header", default=None, help="Whether a CSV file begins with column names; detected if not given."
)
@click.option("--features", type=click.IntRange(1), help="Number of features of an svmlight file.")
@click.option("--zero-based", is_flag=True, help="Feature indices of an svmlight file start at 0.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    default="float32",
    show_default=True,
    help="Type for values parsed from text.",
)
@click.option("--shuffle/--no-shuffle", default=True, show_default=True, help="Store the rows in random order.")
@click.option(
    "--scale",
    type=click.Choice(list(SCALES)),
    default="none",
    show_default=True,
    help="Scaling of the features that training applies.",
)
@click.option("--chunk-rows", type=click.IntRange(1), help="Rows per chunk; chosen by size in bytes if not given.")
@seed_option("Seed for the random order of the rows.")
@cluster_options
@as_json
def ingest(
    source: str,
    data: str,
    label: str | None,
    no_label: bool,
    seed: int,
    workers: int | None,
    scheduler: str | None,
    scheduler_file: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write the rows and labels of SOURCE to the new data set DATA.

    SOURCE is CSV, svmlight, NPY, NPZ, Parquet or AnnData.
    """
    from dasksvm import Dataset

    if no_label and label is not None:
        raise click.UsageError("--label and --no-label cannot be used together.")
    start = time.perf_counter()
    with cluster_client(workers, scheduler, scheduler_file) as client, Bars() as bars:
        made = Dataset.create(
            data, source, False if no_label else label, random_state=seed, client=client, watch=bars, **options
        )
    facts = data_facts(made)
    seconds = time.perf_counter() - start
    if as_json:
        echo_json(facts | {"seconds": seconds})
    else:
        print_data(facts)
        click.echo(f"written in {seconds:.1f} s")
