"""`dasksvm quickstart`."""

import tempfile
import time

import click

from dasksvm.cli.options import connected, seed_option
from dasksvm.cli.output import describe, error_facts, tell_errors


@click.command()
@click.option("--c", "C", default=10.0, show_default=True, help="Bound of the coefficients.")
@seed_option("Decides the split and the order of the examples.")
@click.option("--workers", default=2, show_default=True, help="Processes to start; 0 trains in this one.")
def quickstart(C: float, seed: int, workers: int) -> None:
    """Put scikit-learn's digits on Zarr (8 against the rest), train on a local cluster, evaluate, say what came out."""
    import numpy as np
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    from dasksvm import Dataset, LaSVC

    X, digits = load_digits(return_X_y=True)
    X, y = X.astype(np.uint8), np.where(digits == 8, "eight", "other")
    split = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
    with tempfile.TemporaryDirectory() as folder, connected(workers, None, None) as client:
        data = Dataset.create(
            f"{folder}/train.zarr", split[0], split[2], scale="minmax", chunk_rows=200, random_state=seed
        )
        test = Dataset.create(f"{folder}/test.zarr", split[1], split[3], chunk_rows=200, shuffle=False)
        click.echo(
            f"digits: {len(data)} images to train on, {len(test)} to test, {data.shape[1]} pixels, 8 against the rest"
        )
        click.echo("training (the first run on a machine compiles for some seconds) ...")
        start = time.perf_counter()
        model = LaSVC(C=C, gamma=0.05, random_state=seed, verbose=1, client=client).fit(data)
        describe(model, data, time.perf_counter() - start)
        tell_errors(error_facts(model.model_, test))
    click.echo(
        "\nnext: dasksvm train DATA.zarr MODEL --workers 2, and dasksvm predict; in Python Dataset.create(path, X, y), "
        "LaSVC(epochs='converged') for the exact optimum, LaSVC(max_time=60) for a budget, partial_fit for a stream."
    )
