"""Figures 2 to 6 of paper 3, from the rows that `pipelines.tracking` wrote; curves are means over the runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray

from pipelines.rows import read_rows
from pipelines.tracking import PAPER, power, stretches

Row = dict[str, Any]


def draw(out: Path, folder: Path) -> list[Path]:
    """Plot the figures for each task, as far as there are rows for them.

    Parameters
    ----------
    out : Path
        File of the rows.
    folder : Path

    Returns
    -------
    list of Path
        Of the pictures.
    """
    mpl.use("agg")
    rows = read_rows(out)
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for task in sorted({row["task"] for row in rows}):
        for pipeline, picture in (("gaps", _gaps), ("errors", _errors)):
            found = [row for row in rows if row["task"] == task and row["pipeline"] == pipeline]
            if found:
                made.append(_saved(picture, found, folder / f"tracking-{task}-{pipeline}.png"))
    return made


def _saved(picture: Callable[[Any, list[Row]], None], rows: list[Row], path: Path) -> Path:
    from matplotlib import pyplot as plt

    figure = plt.figure(figsize=(14, 5), layout="constrained")
    picture(figure, rows)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def _mean(curves: list[tuple[Any, Any]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean of some curves."""
    low, high = max(xs[0] for xs, _ in curves), min(xs[-1] for xs, _ in curves)
    grid = np.linspace(low, high, 300)
    return grid, np.mean([np.interp(grid, xs, ys) for xs, ys in curves], axis=0)


def _percent(run: Row, x: str) -> tuple[list[float], list[float]]:
    return [at[x] for at in run["curve"]], [100 * at["error"] for at in run["curve"]]


def _lines(panel: Any, rows: list[Row], curve: Callable[[Row], tuple[Any, Any]]) -> None:
    for key in sorted({(row["algorithm"], row["teacher"], row["steps"]) for row in rows}):
        runs = [row for row in rows if (row["algorithm"], row["teacher"], row["steps"]) == key]
        panel.plot(*_mean([curve(run) for run in runs]), label=f"{key[0]}, {key[1]}, K = {key[2]}", linewidth=1)
    panel.legend(fontsize=7)


def _gaps(figure: Any, rows: list[Row]) -> None:
    """Plot figures 2, 3 and 4: the gap over the examples for both algorithms and both teachers; its mean against K."""
    both, teachers, fit = figure.subplots(1, 3)
    plain = [row for row in rows if row["teacher"] == "random"]
    _lines(both, plain, lambda run: stretches(run["curve"]))
    taught = {(row["algorithm"], row["steps"]) for row in rows if row["teacher"] == "active"}
    _lines(
        teachers,
        [row for row in rows if (row["algorithm"], row["steps"]) in taught],
        lambda run: stretches(run["curve"]),
    )
    for algorithm in sorted({row["algorithm"] for row in plain}):
        runs = [row for row in plain if row["algorithm"] == algorithm]
        fit.plot([row["steps"] for row in runs], [row["mean_gap"] for row in runs], "o", label=algorithm)
        counts = np.unique([row["steps"] for row in runs]).astype(float)
        if len(counts) > 2:
            a, b = power(runs)
            fit.plot(counts, a * counts**b, label=f"{algorithm}: {a:.3f} K^{b:.3f}")
    counts = np.unique([row["steps"] for row in plain]).astype(float)
    fit.plot(counts, PAPER["a"] * counts ** PAPER["b"], ":", label="the paper: algorithm 1 on adult")
    fit.set_xscale("log")
    fit.set_yscale("log")
    fit.set_xlabel("K")
    fit.legend(fontsize=7)
    for panel in (both, teachers):
        panel.set_yscale("log")
        panel.set_xlabel("examples")
    both.set_ylabel("normalised gap")


def _errors(figure: Any, rows: list[Row]) -> None:
    """Plot figures 5 and 6: the test error over examples and over kernel values."""
    examples, values = figure.subplots(1, 2)
    _lines(examples, [row for row in rows if row["algorithm"] != "batch"], lambda run: _percent(run, "seen"))
    _lines(values, rows, lambda run: _percent(run, "kernel_evaluations"))
    examples.set_xlabel("examples")
    values.set_xlabel("kernel values")
    values.set_xscale("log")
    examples.set_ylabel("test error, %")
    for panel in (examples, values):
        panel.set_yscale("log")
