"""What the command line says."""

import sys
from pathlib import Path
from typing import Any

import click

# Feature names that `info` lists, and classes that a class is taken for.
SHOWN = 8


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


def echo_warning(message: Warning | str, *_: Any) -> None:
    """Show a warning in one line."""
    click.echo(f"dasksvm: warning: {message}", err=True)


def tell_data(data: Any) -> None:
    """Say what a data set is."""
    kept = "sparse, " if data.sparse else ""
    counts = ", ".join(f"{count:,} {label}" for label, count in zip(data.classes, data.class_counts, strict=True))
    stored = sum(file.stat().st_size for file in Path(data.path).rglob("*") if file.is_file())
    density = data.nonzeros / (data.shape[0] * data.shape[1])
    click.echo(f"data set          {data.path}, from {data.origin}")
    click.echo(f"rows x features   {data.shape[0]:,} x {data.shape[1]:,} {kept}{data.dtype}, {density:.2%} stored")
    click.echo(f"classes           {counts or 'none: the rows have no labels'}")
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
    click.echo(f"coefficients      up to {bound:g}; bias {_few(model.intercepts)}")
    click.echo(f"classes           {', '.join(str(label) for label in model.classes)}")
    click.echo(f"scaled            {'as it comes' if model.scaling is None else 'by an affine map of each feature'}")


def _few(numbers: Any) -> str:
    more = "" if len(numbers) <= SHOWN else ", ..."
    return ", ".join(f"{number:g}" for number in numbers[:SHOWN]) + more


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
    """Say how often the predictions for a data set are right, and of two classes how well the decision values order the rows."""
    import numpy as np

    from dasksvm.metrics import break_even, geometric_mean
    from dasksvm.prediction import judge

    table, positive, decision = judge(model, data)
    wrong = table.sum() - table.trace()
    width = max(len(str(label)) for label in model.classes)
    click.echo(f"test error        {wrong / table.sum():.2%} ({wrong} of {table.sum()})")
    if 0 < np.count_nonzero(positive) < len(positive):
        from sklearn.metrics import roc_auc_score

        click.echo(f"area under ROC    {roc_auc_score(positive, decision):.4f}")
        click.echo(f"break-even        {break_even(positive, decision):.2%} precision and recall of {model.classes[1]}")
    click.echo(f"g-means           {geometric_mean(table):.2%}, the geometric mean of the classes' accuracies")
    for code, (label, row) in enumerate(zip(model.classes, table, strict=True)):
        most = [at for at in np.argsort(-row, kind="stable")[:SHOWN] if row[at] or len(row) == 2]
        order = sorted(most) if len(row) == 2 else [code, *(at for at in most if at != code)]
        cells = "  ".join(f"{row[at]:4d} as {model.classes[at]}" for at in order)
        click.echo(f"  {label!s:>{width}}: {cells}")
