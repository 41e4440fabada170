"""`dasksvm info`."""

from pathlib import Path

import click

from dasksvm.cli.options import LocalPath, as_json
from dasksvm.cli.output import data_facts, echo_json, model_facts, print_data, print_model


@click.command()
@click.argument("path", type=LocalPath(exists=True))
@as_json
def info(path: str, as_json: bool) -> None:
    """Describe the data set or model at PATH."""
    from dasksvm import Dataset, load

    is_data = Path(path).is_dir()
    facts = data_facts(Dataset.open(path)) if is_data else model_facts(load(path), path)
    if as_json:
        echo_json(facts)
    elif is_data:
        print_data(facts)
    else:
        print_model(facts)
