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

from dasksvm.data.readers import FORMATS
from dasksvm.data.statistics import SCALES

# Feature names that `info` lists.
SHOWN = 8
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
    seed: int,
    workers: int | None,
    scheduler: str | None,
    scheduler_file: str | None,
    **options: Any,
) -> None:
    """Write the rows and labels of SOURCE (CSV, svmlight, NPY, NPZ, Parquet, AnnData) to the new data set DATA."""
    from dasksvm import Dataset

    start = time.perf_counter()
    with connected(workers, scheduler, scheduler_file) as client, Bars() as bars, warnings.catch_warnings():
        warnings.showwarning = _echo_warning  # type: ignore[assignment]
        made = Dataset.create(data, source, label, random_state=seed, client=client, watch=bars, **options)
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
@click.option("--kernel", type=click.Choice(["linear", "poly", "rbf", "sigmoid"]), default="rbf", show_default=True)
@click.option("--gamma", default="scale", show_default=True, help="A number, scale or auto.")
@click.option("--degree", default=3, show_default=True, help="Of the kernel poly.")
@click.option("--coef0", default=0.0, show_default=True, help="Constant of poly and sigmoid.")
@click.option("--tol", default=1e-3, show_default=True, help="Violations below this are left alone.")
@click.option("--epochs", default="1", show_default=True, help="A number, or converged.")
@click.option("--class-weight", type=click.Choice(["balanced"]))
@click.option("--cache-size", default=1000.0, show_default=True, help="Megabytes for kernel rows.")
@click.option("--max-time", type=float, help="Seconds after which the run ends with what it has.")
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
    if not Path(model).absolute().parent.is_dir():
        raise FileNotFoundError(f"{model} cannot be written: its folder does not exist.")
    with connected(workers, scheduler, scheduler_file) as client:
        estimator = LaSVC(
            gamma=gamma if gamma in ("scale", "auto") else _number(gamma, float, "--gamma"),
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
    """Write the row in the source, the predicted label and the decision value of every row of DATA to the CSV file OUT."""
    import csv

    from dasksvm import Dataset, load
    from dasksvm.prediction import blocks

    found, trained = Dataset.open(data), load(model)
    with connected(workers, scheduler, scheduler_file), open(out, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["row", "label", "decision"])
        with click.progressbar(
            blocks(trained, found), length=len(found.chunks()), label="predicting", file=sys.stderr
        ) as bar:
            for rows, labels, values in bar:
                table.writerows(zip(rows.tolist(), labels.tolist(), values.tolist(), strict=True))


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


def _number(text: str, kind: type, option: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no number.", param_hint=option) from None


class Bars:
    """A progress bar for each phase of an ingest, on standard error."""

    def __init__(self) -> None:
        self._phase = ""
        self._bar: Any = None

    def __enter__(self) -> "Bars":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.render_finish()

    def __call__(self, phase: str, rows: int, share: float | None) -> None:
        """Show where a phase stands."""
        if phase != self._phase:
            self.__exit__()
            self._phase, self._bar = phase, click.progressbar(length=1000, file=sys.stderr, label=phase)
        if sys.stderr.isatty():
            self._bar.label = f"{phase} {rows:,} rows"
        self._bar.update(int(1000 * (share or 0.0)) - self._bar.pos)
        if share is None:
            self._bar.render_progress()


def _echo_warning(message: Warning | str, *_: Any) -> None:
    click.echo(f"dasksvm: warning: {message}", err=True)


def tell_data(data: Any) -> None:
    """Say what a data set is."""
    kept = "sparse, " if data.sparse else ""
    counts = ", ".join(f"{count:,} {label}" for label, count in zip(data.classes, data.class_counts, strict=True))
    stored = sum(file.stat().st_size for file in Path(data.path).rglob("*") if file.is_file())
    density = data.nonzeros / (data.shape[0] * data.shape[1])
    click.echo(f"data set          {data.path}, from {data.origin}")
    click.echo(f"rows x features   {data.shape[0]:,} x {data.shape[1]:,} {kept}{data.dtype}, {density:.2%} stored")
    click.echo(f"classes           {counts}")
    click.echo(f"on disk           {stored / 1e6:,.1f} MB in {len(data.chunks()):,} chunks of {data.chunk_rows:,} rows")
    click.echo(
        f"order             {'shuffled' if data.shuffled else 'as in the source: online training wants it shuffled'}"
    )
    click.echo(f"weights           {'yes' if data.weighted else 'no'}")
    click.echo(f"scaled            {'as it comes' if data.scaling is None else 'by an affine map of each feature'}")
    if data.names:
        more = "" if len(data.names) <= SHOWN else f", and {len(data.names) - SHOWN:,} more"
        click.echo(f"features          {', '.join(data.names[:SHOWN])}{more}")


def tell_model(model: Any) -> None:
    """Say what a model is."""
    import numpy as np

    kernel = model.kernel
    parameters = {"rbf": ("gamma",), "poly": ("gamma", "coef0", "degree"), "sigmoid": ("gamma", "coef0")}
    shown = ", ".join(f"{name}={getattr(kernel, name):g}" for name in parameters.get(kernel.name, ()))
    bound = np.abs(model.coefficients).max(initial=0.0)
    count, width = model.support_vectors.shape
    click.echo(f"kernel            {kernel.name} {shown}")
    click.echo(f"support vectors   {count:,} of {width:,} features, {model.support_vectors.dtype}")
    click.echo(f"coefficients      up to {bound:g}; bias {', '.join(f'{b:g}' for b in model.intercepts)}")
    click.echo(f"classes           {', '.join(str(label) for label in model.classes)}")
    click.echo(f"scaled            {'as it comes' if model.scaling is None else 'by an affine map of each feature'}")


def describe(model: Any, data: Any, seconds: float) -> None:
    """Say what a training left."""
    counts = ", ".join(f"{count} {label}" for label, count in zip(model.classes_, model.n_support_, strict=True))
    click.echo(f"\ntrained in {seconds:.2f} s with {model.kernel_evaluations_:,} kernel values")
    click.echo(f"support vectors   {model.n_support_.sum()} ({counts})")
    if data is None:
        click.echo(f"dual objective    {model.dual_objective_:.4f}")
    else:
        primal, _, gap = model.duality_gap(data)
        click.echo(f"dual objective    {model.dual_objective_:.4f}, {gap / primal:.2%} below the primal")


def tell_errors(model: Any, data: Any) -> None:
    """Say how often the predictions for a data set are right."""
    from dasksvm.prediction import confusion

    table = confusion(model, data)
    wrong = table.sum() - table.trace()
    width = max(len(str(label)) for label in model.classes)
    click.echo(f"test error        {wrong / table.sum():.2%} ({wrong} of {table.sum()})")
    for label, row in zip(model.classes, table, strict=True):
        cells = "  ".join(f"{count:4d} as {guess}" for guess, count in zip(model.classes, row, strict=True))
        click.echo(f"  {label!s:>{width}}: {cells}")


if __name__ == "__main__":
    sys.exit(main())
