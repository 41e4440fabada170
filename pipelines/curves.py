"""Reads the error curves of `pipelines.selection`, averages them, and compares them with the exact SVM."""

from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.engine.criteria import CRITERIA
from pipelines.rows import read_rows

KEPT = ("seen", "support_vectors", "error", "seconds", "dual", "kernel_evaluations")
IDENTITY = ("pipeline", "task", "noise", "C", "seed", "solver")


def read(out: Path, **wanted: Any) -> list[dict[str, Any]]:
    """Read the rows of a file that have these values; if a run was repeated, only its last row."""
    rows = read_rows(out)
    found = [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]
    return list({tuple(row.get(key) for key in IDENTITY): row for row in found}.values())


def mean_curve(rows: list[dict[str, Any]]) -> dict[str, NDArray[np.float64]]:
    """Average curves point by point, over the points that all of them have."""
    length = min(len(row["curve"]) for row in rows)
    return {key: np.mean([[entry[key] for entry in row["curve"][:length]] for row in rows], axis=0) for key in KEPT}


def above(rows: list[dict[str, Any]], exact: list[dict[str, Any]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean difference between the errors of curves and those of the exact SVM, and its standard error."""
    of = {row["seed"]: row["error"] for row in exact}
    length = min(len(row["curve"]) for row in rows)
    more = np.array([[at["error"] - of.get(row["seed"], of[0]) for at in row["curve"][:length]] for row in rows])
    return more.mean(axis=0), more.std(axis=0) / np.sqrt(max(len(more) - 1, 1))


def _mean(rows: list[dict[str, Any]]) -> dict[str, float]:
    keys = ("error", "support_vectors", "seconds") if rows else ()
    return {key: float(np.mean([row[key] for row in rows])) for key in keys}


def print_curves(out: Path, name: str, noise: float, C: float) -> None:
    """Compare each criterion's mean curve with the exact SVM and the epoch in random order."""
    rows = read(out, pipeline="curves", task=name, noise=noise, C=C)
    exact, epoch = (_mean([row for row in rows if row["solver"] == solver]) for solver in ("sklearnex", "epoch"))
    for label, point in (("exact", exact), ("epoch", epoch)):
        if point:
            click.echo(
                f"{label:10} {100 * point['error']:.2f} %, {point['support_vectors']:.0f} SVs, {point['seconds']:.2f} s"
            )
    for criterion in CRITERIA:
        mine = [row for row in rows if row["solver"] == criterion]
        if not mine:
            continue
        mean = mean_curve(mine)
        more, spread = above(mine, [row for row in rows if row["solver"] == "sklearnex"])
        click.echo(f"{criterion}, {len(mine)} runs: examples, error - exact, SVs / exact, seconds")
        for at in range(len(mean["seen"])):
            click.echo(
                f"{mean['seen'][at]:9.0f} {100 * more[at]:+8.2f} ± {100 * spread[at]:.2f}"
                f" {mean['support_vectors'][at] / exact['support_vectors']:9.0%} {mean['seconds'][at]:9.2f}"
            )
