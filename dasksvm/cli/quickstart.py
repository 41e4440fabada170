"""`dasksvm quickstart`."""

import tempfile
import time

import click

from dasksvm.cli.options import cluster_client, seed_option
from dasksvm.cli.output import describe, error_facts, print_errors


@click.command()
@click.option("--c", "C", default=10.0, show_default=True, help="Penalty of errors: bound of the coefficients.")
@seed_option("Seed for the split and the order of the examples.")
@click.option("--workers", default=2, show_default=True, help="Worker processes to start; 0 trains in this process.")
def quickstart(C: float, seed: int, workers: int) -> None:
    """Train on scikit-learn's digits and evaluate the model.

    The model separates the digit 8 from the rest. It is trained on a local cluster.
    """
    import numpy as np
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    from dasksvm import Dataset, LaSVC

    X, digits = load_digits(return_X_y=True)
    X, y = X.astype(np.uint8), np.where(digits == 8, "eight", "other")
    split = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
    with tempfile.TemporaryDirectory() as folder, cluster_client(workers, None, None) as client:
        data = Dataset.create(
            f"{folder}/train.zarr", split[0], split[2], scale="minmax", chunk_rows=200, random_state=seed
        )
        test = Dataset.create(f"{folder}/test.zarr", split[1], split[3], chunk_rows=200, shuffle=False)
        click.echo(
            f"digits, 8 against the rest: {len(data)} training images, {len(test)} test images, {data.shape[1]} pixels"
        )
        click.echo("training (the first run on a machine needs some seconds to compile)")
        start = time.perf_counter()
        model = LaSVC(C=C, gamma=0.05, random_state=seed, verbose=1, client=client).fit(data)
        describe(model, data, time.perf_counter() - start)
        print_errors(error_facts(model.model_, test))
    click.echo(
        "\nnext: `dasksvm train DATA.zarr MODEL --workers 2` and `dasksvm predict`; in Python, Dataset.create(path, X, y), "
        "LaSVC(epochs='converged') for the exact optimum, LaSVC(max_time=60) for a time limit, partial_fit for a stream."
    )
