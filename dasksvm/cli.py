"""The command line."""

import sys
import time

import click


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dasksvm")
def main() -> None:
    """Kernel support vector machines for data larger than one machine's memory."""


@main.command()
@click.option("--c", "C", default=10.0, show_default=True, help="Bound of the coefficients.")
@click.option("--seed", default=0, show_default=True, help="Decides the split and the order of the examples.")
def quickstart(C: float, seed: int) -> None:
    """Train on scikit-learn's digits (8 against the rest), evaluate, and say what came out."""
    import numpy as np
    from sklearn.datasets import load_digits
    from sklearn.metrics import confusion_matrix
    from sklearn.model_selection import train_test_split

    from dasksvm import LaSVC

    X, digits = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)
    y = np.where(digits == 8, "eight", "other")
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
    click.echo(
        f"digits: {len(X_train)} images to train on, {len(X_test)} to test, {X.shape[1]} pixels, 8 against the rest"
    )
    click.echo("training (the first run on a machine compiles for some seconds) ...")
    start = time.perf_counter()
    model = LaSVC(C=C, random_state=seed, verbose=1).fit(X_train, y_train)
    seconds = time.perf_counter() - start
    primal, _, gap = model.duality_gap(X_train, y_train)
    table = confusion_matrix(y_test, model.predict(X_test), labels=model.classes_)
    error = 1 - np.trace(table) / table.sum()
    counts = ", ".join(f"{count} {label}" for label, count in zip(model.classes_, model.n_support_, strict=True))
    width = max(len(label) for label in model.classes_)
    click.echo(f"\ntrained in {seconds:.2f} s with {model.kernel_evaluations_:,} kernel values")
    click.echo(f"support vectors   {model.n_support_.sum()} ({counts})")
    click.echo(f"dual objective    {model.dual_objective_:.4f}, {gap / primal:.2%} below the primal")
    click.echo(f"test error        {error:.2%} ({table.sum() - np.trace(table)} of {table.sum()})")
    for label, row in zip(model.classes_, table, strict=True):
        cells = "  ".join(f"{count:4d} as {guess}" for guess, count in zip(model.classes_, row, strict=True))
        click.echo(f"  {label:>{width}}: {cells}")
    click.echo(
        "\nnext: LaSVC(epochs='converged') for the exact optimum, LaSVC(max_time=60) for a budget, "
        "partial_fit for a stream;\n      python -m pipelines.compare --task mnist8 measures against other solvers."
    )


if __name__ == "__main__":
    sys.exit(main())
