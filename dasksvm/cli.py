"""The command line."""

import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from dasksvm.console import Bars, describe, echo_warning, tell_data, tell_errors, tell_model
from dasksvm.data.readers import FORMATS
from dasksvm.data.statistics import SCALES
from dasksvm.solver.kernels import KERNELS
from dasksvm.solver.selection import CRITERIA

Command = TypeVar("Command", bound=Callable[..., Any])


class OneLine(click.Group):
    """Commands whose expected errors are one line on standard error, and exit code 4."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except (ValueError, OSError, RuntimeError, ImportError) as error:
            if ctx.params["traceback"]:
                raise
            click.echo(f"dasksvm: {error}", err=True)
            ctx.exit(4)


@click.group(cls=OneLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dasksvm")
@click.option("--traceback", is_flag=True, help="Show where an error came from.")
def main(traceback: bool) -> None:
    """Kernel support vector machines for data larger than one machine's memory."""


def cluster_options(command: Command) -> Command:
    """Add the options that say where the work is done."""
    command = click.option(
        "--scheduler-file", type=click.Path(exists=True, dir_okay=False), help="Of a running cluster."
    )(command)
    command = click.option("--scheduler", metavar="ADDRESS", help="Of a running cluster.")(command)
    return click.option("--workers", type=click.IntRange(0), help="Processes to start on this machine; 0: none.")(
        command
    )


@contextmanager
def connected(workers: int | None, scheduler: str | None, scheduler_file: str | None) -> Iterator[Any]:
    """Give a client of the cluster that the options name, or None for this process."""
    if sum(option is not None for option in (workers, scheduler, scheduler_file)) > 1:
        raise click.UsageError("--workers, --scheduler and --scheduler-file exclude each other.")
    from dasksvm import runtime

    with runtime.opened(workers or 0, scheduler, scheduler_file) as client:
        if client is not None:
            click.echo(f"cluster {client.scheduler.address}, dashboard {client.dashboard_link}", err=True)
        yield client


@main.command()
@click.option("--c", "C", default=10.0, show_default=True, help="Bound of the coefficients.")
@click.option("--seed", default=0, show_default=True, help="Decides the split and the order of the examples.")
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
        tell_errors(model.model_, test)
    click.echo(
        "\nnext: dasksvm train DATA.zarr MODEL --workers 2, and dasksvm predict; in Python Dataset.create(path, X, y), "
        "LaSVC(epochs='converged') for the exact optimum, LaSVC(max_time=60) for a budget, partial_fit for a stream."
    )


@main.command()
@click.argument("source", type=click.Path())
@click.argument("data", type=click.Path())
@click.option("--label", help="Column of the labels, by name or number; of NPY the file, of NPZ the array.")
@click.option("--no-label", is_flag=True, help="The rows have no labels: DATA is a pool for `dasksvm label`.")
@click.option("--weight", help="Column of the weights, in the same way.")
@click.option("--format", type=click.Choice(FORMATS), help="Where the name of SOURCE does not tell.")
@click.option(
    "--header/--no-header", default=None, help="Whether the first line of a CSV file has names; else guessed."
)
@click.option("--features", type=click.IntRange(1), help="Of an svmlight file: the number of features.")
@click.option("--zero-based", is_flag=True, help="Of an svmlight file: indices begin with 0.")
@click.option(
    "--dtype", type=click.Choice(["float32", "float64"]), default="float32", show_default=True, help="Of text."
)
@click.option("--shuffle/--no-shuffle", default=True, show_default=True, help="Bring the rows into random order.")
@click.option("--scale", type=click.Choice(SCALES), default="none", show_default=True, help="What training applies.")
@click.option("--chunk-rows", type=click.IntRange(1), help="Rows of a chunk; else by bytes.")
@click.option("--seed", default=0, show_default=True, help="Decides the order.")
@cluster_options
def ingest(
    source: str,
    data: str,
    label: str | None,
    no_label: bool,
    seed: int,
    workers: int | None,
    scheduler: str | None,
    scheduler_file: str | None,
    **options: Any,
) -> None:
    """Write the rows and labels of SOURCE (CSV, svmlight, NPY, NPZ, Parquet, AnnData) to the new data set DATA."""
    from dasksvm import Dataset

    if no_label and label is not None:
        raise click.UsageError("--label and --no-label exclude each other.")
    start = time.perf_counter()
    with connected(workers, scheduler, scheduler_file) as client, Bars() as bars, warnings.catch_warnings():
        warnings.showwarning = echo_warning  # type: ignore[assignment]
        made = Dataset.create(
            data, source, False if no_label else label, random_state=seed, client=client, watch=bars, **options
        )
    tell_data(made)
    click.echo(f"written in {time.perf_counter() - start:.1f} s")


@main.command()
@click.argument("path", type=click.Path(exists=True))
def info(path: str) -> None:
    """Say what a data set or a model is."""
    from dasksvm import Dataset, load

    if Path(path).is_dir():
        tell_data(Dataset.open(path))
    else:
        tell_model(load(path))


@main.command()
@click.argument("data", type=click.Path(exists=True, file_okay=False))
@click.argument("model", type=click.Path(dir_okay=False))
@click.option("--c", "C", default=1.0, show_default=True, help="Bound of the coefficients.")
@click.option("--kernel", type=click.Choice(KERNELS), default="rbf", show_default=True)
@click.option("--gamma", default="scale", show_default=True, help="A number, scale or auto.")
@click.option("--degree", default=3, show_default=True, help="Of the kernel poly.")
@click.option("--coef0", default=0.0, show_default=True, help="Constant of poly and sigmoid.")
@click.option("--tol", default=1e-3, show_default=True, help="Violations below this are left alone.")
@click.option("--epochs", default="1", show_default=True, help="A number, or converged.")
@click.option(
    "--selection", type=click.Choice(CRITERIA), default="random", show_default=True, help="Which example is next."
)
@click.option(
    "--candidates", type=click.IntRange(1), default=50, show_default=True, help="Examples one is chosen from."
)
@click.option("--max-examples", type=click.IntRange(1), help="Examples after which the run ends with what it has.")
@click.option("--max-support", type=click.IntRange(2), help="Support vectors at which it does.")
@click.option("--class-weight", type=click.Choice(["balanced"]))
@click.option(
    "--decision-function-shape",
    type=click.Choice(["ovr", "ovo"]),
    default="ovr",
    show_default=True,
    help="Of more than two classes: each against the rest, or pairs.",
)
@click.option("--cache-size", default=1000.0, show_default=True, help="Megabytes for kernel rows.")
@click.option("--max-time", type=float, help="Seconds after which it does.")
@click.option("--seed", default=0, show_default=True, help="Decides the order of the examples.")
@cluster_options
def train(
    data: str,
    model: str,
    gamma: str,
    epochs: str,
    seed: int,
    workers: int | None,
    scheduler: str | None,
    scheduler_file: str | None,
    **parameters: Any,
) -> None:
    """Train LaSVC on the data set DATA and write MODEL."""
    from dasksvm import Dataset, LaSVC
    from dasksvm import train as run_training

    found = Dataset.open(data)
    _check_folder(model)
    with connected(workers, scheduler, scheduler_file) as client:
        estimator = LaSVC(
            gamma=_gamma(gamma),
            epochs=epochs if epochs == "converged" else _number(epochs, int, "--epochs"),
            random_state=seed,
            verbose=1,
            client=client,
            **parameters,
        )
        start = time.perf_counter()
        run = run_training(found, estimator)
        run.model.save(model)
        describe(run.estimator, None, time.perf_counter() - start)
        click.echo(run.timings.told())


@main.command()
@click.argument("data", type=click.Path(exists=True, file_okay=False))
@click.argument("model", type=click.Path(exists=True, dir_okay=False))
@click.argument("out", type=click.Path(dir_okay=False))
@cluster_options
def predict(
    data: str, model: str, out: str, workers: int | None, scheduler: str | None, scheduler_file: str | None
) -> None:
    """Write the row in the source, the predicted label and the decision values of every row of DATA to the CSV file OUT."""
    import csv

    from dasksvm import Dataset, load
    from dasksvm.prediction import blocks

    found, trained = Dataset.open(data), load(model)
    with connected(workers, scheduler, scheduler_file), open(out, "w", newline="") as file:
        table = csv.writer(file)
        names = [f"decision {label}" for label in trained.deciders()]
        table.writerow(["row", "label", *(names if len(names) > 1 else ["decision"])])
        with click.progressbar(
            blocks(trained, found), length=len(found.chunks()), label="predicting", file=sys.stderr
        ) as bar:
            for rows, labels, values in bar:
                table.writerows(zip(rows.tolist(), labels.tolist(), *values.T.tolist(), strict=True))


@main.command()
@click.argument("data", type=click.Path(exists=True, file_okay=False))
@click.argument("model", type=click.Path(exists=True, dir_okay=False))
@cluster_options
def evaluate(data: str, model: str, workers: int | None, scheduler: str | None, scheduler_file: str | None) -> None:
    """Compare the predictions of MODEL for DATA with its labels."""
    from dasksvm import Dataset, load

    found, trained = Dataset.open(data), load(model)
    with connected(workers, scheduler, scheduler_file):
        tell_errors(trained, found)


@main.command()
@click.argument("pool", type=click.Path(exists=True, file_okay=False))
@click.argument("labels", type=click.Path(dir_okay=False))
@click.option("--model", type=click.Path(dir_okay=False), help="Write the model here at the end.")
@click.option("--c", "C", default=1.0, show_default=True, help="Bound of the coefficients.")
@click.option("--kernel", type=click.Choice(KERNELS), default="rbf", show_default=True)
@click.option("--gamma", default="scale", show_default=True, help="A number, scale or auto.")
@click.option("--candidates", default="50", show_default=True, help="Rows that a question is chosen from, or all.")
@click.option("--first", type=click.IntRange(1), default=5, show_default=True, help="Labels of each class at first.")
@click.option("--seed", default=0, show_default=True, help="Decides which rows are candidates.")
def label(
    pool: str, labels: str, model: str | None, gamma: str, candidates: str, first: int, seed: int, **parameters: Any
) -> None:
    """Ask a person for the labels of those rows of POOL that help most, and keep the answers in the CSV file LABELS.

    What is in LABELS is learned first, so that one can leave and come back at any time. No other labels are read.
    """
    from dasksvm import ActiveLearner, Dataset, LaSVC
    from dasksvm.labelling import Answers, ask

    data = Dataset.open(pool)
    if model is not None:
        _check_folder(model)
    estimator = LaSVC(gamma=_gamma(gamma), random_state=seed, **parameters)
    chosen = candidates if candidates == "all" else _number(candidates, int, "--candidates")
    learner = ActiveLearner(estimator, data, candidates=chosen, first=first)
    ask(learner, data, Answers(labels, data))
    if model is None:
        return
    if learner.started:
        learner.model_.save(model)
        click.echo(f"wrote {model}: {learner.model_.support_vectors.shape[0]} support vectors")
    else:
        click.echo(f"no model yet: {first} labels of each of two classes are needed")


def _check_folder(path: str) -> None:
    if not Path(path).absolute().parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: its folder does not exist.")


def _gamma(text: str) -> float | str:
    return text if text in ("scale", "auto") else float(_number(text, float, "--gamma"))


def _number(text: str, kind: type, option: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no number.", param_hint=option) from None


if __name__ == "__main__":
    sys.exit(main())
