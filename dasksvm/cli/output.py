"""Output of the command line: facts are collected in a dict and printed as lines or as JSON."""

import json
import math
import sys
from dataclasses import asdict
from time import monotonic
from typing import Any

import click

# Most feature names and intercepts that `info` lists, and most predicted classes that `evaluate` lists for each true class.
SHOWN = 8
# Seconds between two lines of progress.
PAUSE = 5.0
# Clears the line on which a terminal shows progress.
CLEAR = "\r\x1b[K"
Facts = dict[str, Any]


class Bars:
    """A progress bar on standard error for each phase of a command; plain lines if it is not a terminal."""

    def __init__(self) -> None:
        self._phase = ""
        self._bar: Any = None
        self._printed_at = -math.inf

    def __enter__(self) -> "Bars":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.render_finish()

    def __call__(self, phase: str, rows: int, share: float | None) -> None:
        """Show the progress of a phase: rows so far and, if it is known, their share of all rows."""
        text = f"{phase} {rows:,} rows"
        if not sys.stderr.isatty():
            now = monotonic()
            if phase != self._phase or now - self._printed_at >= PAUSE:
                self._phase, self._printed_at = phase, now
                click.echo(text if share is None else f"{text}, {share:.0%}", err=True)
            return
        if phase != self._phase:
            self.__exit__()
            self._phase, self._bar = phase, click.progressbar(length=1000, file=sys.stderr)
        self._bar.label = text
        self._bar.update(int(1000 * (share or 0.0)) - self._bar.pos)
        if share is None:
            self._bar.render_progress()


def in_one_line(text: str) -> str:
    """Join the lines of a text into one."""
    return " ".join(text.split())


def echo_warning(message: Warning | str, *_: Any) -> None:
    """Print a warning as one line on standard error."""
    click.echo(f"{CLEAR if sys.stderr.isatty() else ''}dasksvm: warning: {in_one_line(str(message))}", err=True)


def echo_json(facts: Facts) -> None:
    """Print facts as one JSON object; infinite values and NaN become null."""
    click.echo(json.dumps(_plain(facts), allow_nan=False, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def data_facts(data: Any) -> Facts:
    """Collect the properties of a data set."""
    return {
        "path": data.path,
        "origin": data.origin,
        "rows": data.shape[0],
        "features": data.shape[1],
        "dtype": str(data.dtype),
        "sparse": data.sparse,
        "nonzeros": data.nonzeros,
        "classes": data.classes,
        "class_counts": data.class_counts,
        "bytes": data.stored_bytes(),
        "chunks": len(data.chunks()),
        "chunk_rows": data.chunk_rows,
        "shuffled": data.shuffled,
        "weighted": data.weighted,
        "scaled": data.scaling is not None,
        "names": data.names,
    }


def print_data(facts: Facts) -> None:
    """Print the properties of a data set."""
    kept = "sparse, " if facts["sparse"] else ""
    classes = zip(facts["classes"], facts["class_counts"], strict=True)
    counts = ", ".join(f"{count:,} {label}" for label, count in classes)
    rows, width = facts["rows"], facts["features"]
    click.echo(f"data set          {facts['path']}, from {facts['origin']}")
    density = facts["nonzeros"] / (rows * width)
    click.echo(f"rows x features   {rows:,} x {width:,} {kept}{facts['dtype']}, {density:.2%} of the values stored")
    click.echo(f"classes           {counts or 'none: the rows have no labels'}")
    chunks = f"{facts['chunks']:,} chunks of {facts['chunk_rows']:,} rows"
    click.echo(f"on disk           {facts['bytes'] / 1e6:,.1f} MB in {chunks}")
    order = "shuffled" if facts["shuffled"] else "as in the source; online training needs shuffled rows"
    click.echo(f"order             {order}")
    click.echo(f"weights           {'yes' if facts['weighted'] else 'no'}")
    click.echo(f"scaled            {_scaled(facts)}")
    _print_names(facts["names"])


def model_facts(model: Any, path: str) -> Facts:
    """Collect the properties of a model."""
    import numpy as np

    kernel = model.kernel
    return {
        "path": path,
        "kernel": kernel.name,
        "kernel_parameters": {name: getattr(kernel, name) for name in kernel.formula.parameters},
        "support_vectors": model.support_vectors.shape[0],
        "features": model.support_vectors.shape[1],
        "dtype": str(model.support_vectors.dtype),
        "largest_coefficient": np.abs(model.coefficients).max(initial=0.0),
        "intercepts": model.intercepts,
        "classes": model.classes,
        "deciders": model.deciders(),
        "scaled": model.scaling is not None,
        "names": model.feature_names,
    }


def print_model(facts: Facts) -> None:
    """Print the properties of a model."""
    shown = ", ".join(f"{name}={value:g}" for name, value in facts["kernel_parameters"].items())
    vectors = f"{facts['support_vectors']:,} with {facts['features']:,} features, {facts['dtype']}"
    click.echo(f"kernel            {facts['kernel']} {shown}")
    click.echo(f"support vectors   {vectors}")
    click.echo(f"coefficients      at most {facts['largest_coefficient']:g}; bias {_few(facts['intercepts'])}")
    click.echo(f"classes           {', '.join(str(label) for label in facts['classes'])}")
    click.echo(f"scaled            {_scaled(facts)}")
    _print_names(facts["names"])


def _print_names(names: Any) -> None:
    if names:
        more = "" if len(names) <= SHOWN else f", and {len(names) - SHOWN:,} more"
        click.echo(f"features          {', '.join(names[:SHOWN])}{more}")


def _scaled(facts: Facts) -> str:
    return "yes, each feature by an affine map" if facts["scaled"] else "no"


def _few(numbers: Any) -> str:
    more = "" if len(numbers) <= SHOWN else f", and {len(numbers) - SHOWN:,} more"
    return ", ".join(f"{number:g}" for number in numbers[:SHOWN]) + more


def print_job(status: Any) -> None:
    """Print the status of a job as one line, followed by its warnings, one line each."""
    about, progress = status.about, status.progress
    line = f"{status.id:20} {status.state:9} {about['solver']} on {about['data']}, submitted {about['submitted']}"
    if progress is not None:
        seen, members, seconds = progress["seen"], progress["members"], progress["seconds"]
        line += f": {seen:,} examples seen, {members:,} kept, {seconds:.1f} s"
    click.echo(line if status.error is None else f"{line}: {in_one_line(status.error)}")
    for text in status.warnings:
        click.echo(f"    {in_one_line(text)}")


def run_facts(run: Any) -> Facts:
    """Collect the results of a training."""
    fitted = run.estimator
    hidden = ("client", "verbose")
    return {
        "parameters": {name: value for name, value in fitted.get_params().items() if name not in hidden},
        "classes": fitted.classes_,
        "support_vectors": fitted.n_support_.sum(),
        "support_vectors_by_class": fitted.n_support_,
        "dual_objective": fitted.dual_objective_,
        "kernel_evaluations": fitted.kernel_evaluations_,
        "steps": fitted.n_iter_,
        "seen": run.history[-1]["seen"],
        "timings": asdict(run.timings),
    }


def describe(model: Any, data: Any, seconds: float) -> None:
    """Print the results of a training; with its data set, also the relative duality gap."""
    counts = ", ".join(f"{count} {label}" for label, count in zip(model.classes_, model.n_support_, strict=True))
    click.echo(f"trained in {seconds:.2f} s with {model.kernel_evaluations_:,} kernel values")
    click.echo(f"support vectors   {model.n_support_.sum()} ({counts})")
    if data is None:
        click.echo(f"dual objective    {model.dual_objective_:.4f}")
    else:
        primal, _, gap = model.duality_gap(data)
        click.echo(f"dual objective    {model.dual_objective_:.4f}, {gap / primal:.2%} below the primal")


def error_facts(model: Any, data: Any, **how: Any) -> Facts:
    """Collect the accuracy figures of the predictions for a data set; with two classes also AUC and break-even point.

    `how` is passed on to `compare_with_labels`.
    """
    import numpy as np

    from dasksvm.model.metrics import break_even, geometric_mean
    from dasksvm.model.prediction import compare_with_labels

    table, positive, decision = compare_with_labels(model, data, **how)
    wrong, rows = int(table.sum() - table.trace()), int(table.sum())
    ordered = 0 < np.count_nonzero(positive) < len(positive)
    auc = None
    if ordered:
        from sklearn.metrics import roc_auc_score

        auc = float(roc_auc_score(positive, decision))
    return {
        "error": wrong / rows,
        "wrong": wrong,
        "rows": rows,
        "classes": model.classes,
        "confusion": table,
        "auc": auc,
        "break_even": break_even(positive, decision) if ordered else None,
        "g_means": geometric_mean(table),
    }


def print_errors(facts: Facts) -> None:
    """Print the accuracy figures of the predictions for a data set."""
    import numpy as np

    classes, table = facts["classes"], facts["confusion"]
    width = max(len(str(label)) for label in classes)
    click.echo(f"test error        {facts['error']:.2%} ({facts['wrong']} of {facts['rows']})")
    if facts["auc"] is not None:
        click.echo(f"area under ROC    {facts['auc']:.4f}")
        click.echo(f"break-even        {facts['break_even']:.2%}, where precision and recall of {classes[1]} are equal")
    click.echo(f"g-means           {facts['g_means']:.2%}, the geometric mean of the accuracies of the classes")
    for code, (label, row) in enumerate(zip(classes, table, strict=True)):
        most = [at for at in np.argsort(-row, kind="stable")[:SHOWN] if row[at] or len(row) == 2]
        order = sorted(most) if len(row) == 2 else [code, *(at for at in most if at != code)]
        cells = "  ".join(f"{row[at]:4d} as {classes[at]}" for at in order)
        click.echo(f"  {label!s:>{width}}: {cells}")
