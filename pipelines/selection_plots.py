"""Figures 11 to 16 of paper 1, from the rows that `pipelines.selection` wrote."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from dasksvm.solver.engine.criteria import CRITERIA
from pipelines.curves import above, mean_curve, read

COLOURS = dict(zip(CRITERIA, ("tab:gray", "tab:red", "tab:blue", "tab:green"), strict=True))
AXES = {"seen": "examples", "seconds": "seconds", "support_vectors": "support vectors"}


def draw(out: Path, folder: Path) -> list[Path]:
    """Make one plot for each task that has rows.

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
    rows = read(out, pipeline="curves")
    made = [
        _curves([row for row in rows if (row["task"], row["noise"], row["C"]) == key], *key, folder)
        for key in sorted({(row["task"], row["noise"], row["C"]) for row in rows})
    ]
    asked = read(out, pipeline="queries")
    return [*made, _queries(asked, folder)] if asked else made


def _curves(rows: list[dict[str, Any]], task: str, noise: float, C: float, folder: Path) -> Path:
    """Plot figures 11 to 15: the error against examples, time and support vectors."""
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(15, 4.5), sharey=True, layout="constrained")
    exact = [row for row in rows if row["solver"] == "sklearnex"]
    level = 100 * np.mean([row["error"] for row in exact])
    for criterion in CRITERIA:
        mine = [row for row in rows if row["solver"] == criterion]
        if not mine:
            continue
        mean = mean_curve(mine)
        for panel, key in zip(panels, AXES, strict=True):
            error, spread = 100 * mean["error"], 100 * above(mine, exact)[1]
            panel.plot(mean[key], error, color=COLOURS[criterion], label=f"{criterion} ({len(mine)} runs)")
            panel.fill_between(mean[key], error - spread, error + spread, color=COLOURS[criterion], alpha=0.2)
    for panel, label in zip(panels, AXES.values(), strict=True):
        panel.axhline(level, linestyle="--", color="black", label="exact SVM")
        panel.set_xlabel(label)
        panel.set_yscale("log")
    panels[2].axvline(np.mean([row["support_vectors"] for row in exact]), linestyle=":", color="black")
    panels[0].set_ylabel("test error, %")
    panels[0].legend()
    figure.suptitle(f"{task}, C = {C:g}{f', {noise:.0%} of the training labels wrong' if noise else ''}")
    return _saved(figure, folder / f"selection-{task}-C{C:g}{f'-noise-{noise:g}' if noise else ''}.png")


def _queries(rows: list[dict[str, Any]], folder: Path) -> Path:
    """Plot figure 16: the error against labels and time."""
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(11, 4.5), sharey=True, layout="constrained")
    for method in dict.fromkeys(row["solver"] for row in rows):
        curves = [row["curve"] for row in rows if row["solver"] == method]
        error = 100 * np.mean([[at["error"] for at in curve] for curve in curves], axis=0)
        for panel, key in zip(panels, ("labels", "seconds"), strict=True):
            panel.plot(np.mean([[at[key] for at in curve] for curve in curves], axis=0), error, label=method)
    panels[0].set_xlabel("labels asked for")
    panels[1].set_xlabel("seconds")
    panels[1].set_xscale("log")
    panels[0].set_ylabel("test error, %")
    panels[0].legend()
    return _saved(figure, folder / "selection-reuters.png")


def _saved(figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path
