"""Figures 6 and 7 of paper 4, from the rows that `pipelines.decomposition` wrote."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from pipelines.decomposition_paper import NAMES, Rows, degenerate, grouped, median, read

AXES = {"kernel_rows": "kernel rows", "iterations": "steps"}
DOTS = {"all": "gray", "bounded": "black"}


def draw(out: Path, folder: Path) -> list[Path]:
    """Plot the grid of C and γ of each task (figure 6), and its cache sizes (figure 7).

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
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for (study, task, examples), rows in grouped(
        read(out), lambda row: (row["study"], row["task"], row["examples"])
    ).items():
        if study in ("grid", "cache"):
            picture = _grid if study == "grid" else _cache
            paths.append(picture(f"{task}, {examples} rows", rows, folder / f"decomposition-{study}-{task}.png"))
    return paths


def _grid(title: str, rows: Rows, path: Path) -> Path:
    from matplotlib import pyplot as plt

    costs = sorted({row["parameters"]["C"] for row in rows})
    widths = sorted({row["parameters"]["gamma"] for row in rows})
    others = [name for name in NAMES if name != "hmg" and any(row["selection"] == name for row in rows)]
    figure, panels = plt.subplots(
        2, max(len(others), 1), figsize=(6 * max(len(others), 1), 9), layout="constrained", squeeze=False
    )
    at = grouped(rows, lambda row: (row["parameters"]["C"], row["parameters"]["gamma"], row["selection"]))
    for (line, axis), (column, other) in [(one, two) for one in enumerate(AXES) for two in enumerate(others)]:
        panel = panels[line, column]
        shares = np.full((len(costs), len(widths)), np.nan)
        for a, C in enumerate(costs):
            for b, gamma in enumerate(widths):
                mine, theirs = at.get((C, gamma, "hmg")), at.get((C, gamma, other))
                if mine and theirs:
                    shares[a, b] = np.log2(max(median(mine, axis), 1) / max(median(theirs, axis), 1))
                    _dot(panel, b, a, degenerate(mine[0]))
        shown = panel.imshow(shares, origin="lower", cmap="PuOr", vmin=-1.5, vmax=1.5, aspect="auto")
        panel.set_xticks(range(len(widths)), [f"{gamma:.2g}" for gamma in widths])
        panel.set_yticks(range(len(costs)), [f"{C:.2g}" for C in costs])
        panel.set_xlabel("γ")
        panel.set_ylabel("C")
        panel.set_title(f"HMG's {AXES[axis]} over {NAMES[other]}'s, log₂")
        figure.colorbar(shown, ax=panel)
    return _saved(figure, path, f"{title}: C and γ (figure 6); gray: all are SVs, black: all SVs at C")


def _dot(panel: Any, x: int, y: int, kind: str) -> None:
    if kind:
        panel.plot(x, y, "o", color=DOTS[kind])


def _cache(title: str, rows: Rows, path: Path) -> Path:
    from matplotlib import pyplot as plt

    axes = {"kernel_rows": "kernel rows", "missed": "rows that were not cached", "seconds": "seconds"}
    figure, panels = plt.subplots(1, len(axes), figsize=(16, 5), layout="constrained")
    for name, mine in grouped(rows, lambda row: row["selection"]).items():
        by_share = sorted(grouped(mine, lambda row: row["cache_share"]).items())
        for panel, axis in zip(panels, axes, strict=True):
            shares = [100 * share for share, _ in by_share]
            panel.plot(shares, [median(some, axis) for _, some in by_share], "o-", label=NAMES[name])
    for panel, label in zip(panels, axes.values(), strict=True):
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel("cache, % of the kernel matrix")
        panel.set_ylabel(label)
    panels[0].legend()
    return _saved(figure, path, f"{title}: size of the cache (table 5 and figure 7)")


def _saved(figure: Any, path: Path, title: str) -> Path:
    from matplotlib import pyplot as plt

    figure.suptitle(title)
    figure.savefig(path, dpi=100)
    plt.close(figure)
    return path
