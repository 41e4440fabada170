"""`dasksvm ingest`."""

import time
from typing import Any

import click

from dasksvm.cli.options import LocalPath, as_json, cluster_options, connected, seed_option
from dasksvm.cli.output import Bars, data_facts, echo_json, tell_data
from dasksvm.data.ingest.readers.formats import FORMATS
from dasksvm.data.scales import SCALES


@click.command()
@click.argument("source", type=LocalPath())
@click.argument("data", type=click.Path())
@click.option("--label", help="Column of the labels, by name or number; of NPY the file, of NPZ the array.")
@click.option("--no-label", is_flag=True, help="The rows have no labels: DATA is a pool for `dasksvm label`.")
@click.option("--weight", help="Column of the weights, in the same way.")
@click.option("--format", type=click.Choice(list(FORMATS)), help="Where the name of SOURCE does not tell.")
@click.option(
    "--header/--no-header", default=None, help="Whether the first line of a CSV file has names; else guessed."
)
@click.option("--features", type=click.IntRange(1), help="Of an svmlight file: the number of features.")
@click.option("--zero-based", is_flag=True, help="Of an svmlight file: indices begin with 0.")
@click.option(
    "--dtype", type=click.Choice(["float32", "float64"]), default="float32", show_default=True, help="Of text."
)
@click.option("--shuffle/--no-shuffle", default=True, show_default=True, help="Bring the rows into random order.")
@click.option(
    "--scale", type=click.Choice(list(SCALES)), default="none", show_default=True, help="What training applies."
)
@click.option("--chunk-rows", type=click.IntRange(1), help="Rows of a chunk; else by bytes.")
@seed_option("Decides the order.")
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
    """Write the rows and labels of SOURCE (CSV, svmlight, NPY, NPZ, Parquet, AnnData) to the new data set DATA."""
    from dasksvm import Dataset

    if no_label and label is not None:
        raise click.UsageError("--label and --no-label exclude each other.")
    start = time.perf_counter()
    with connected(workers, scheduler, scheduler_file) as client, Bars() as bars:
        made = Dataset.create(
            data, source, False if no_label else label, random_state=seed, client=client, watch=bars, **options
        )
    facts = data_facts(made)
    seconds = time.perf_counter() - start
    if as_json:
        echo_json(facts | {"seconds": seconds})
    else:
        tell_data(facts)
        click.echo(f"written in {seconds:.1f} s")
