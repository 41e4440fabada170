"""Curves of paper 5, figures 4.1 to 4.5 and 5.1 to 5.3, from the rows that `pipelines.multiclass` wrote."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

AXES = {"seconds": "seconds", "kernel_evaluations": "kernel values"}


def draw(out: Path, folder: Path) -> list[Path]:
    """Make one plot for each task, machine and cache size that has curves.

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
    rows = [row for row in map(json.loads, out.read_text().splitlines()) if row["pipeline"] == "curves"]
    keys = sorted({(row["task"], row["machine"], row["cache_share"]) for row in rows})
    return [_picture([row for row in rows if _key(row) == key], *key, folder) for key in keys]


def _key(row: dict[str, Any]) -> tuple[str, str, float]:
    return row["task"], row["machine"], row["cache_share"]


def _picture(rows: list[dict[str, Any]], task: str, machine: str, share: float, folder: Path) -> Path:
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(2, 2, figsize=(12, 8), layout="constrained")
    for row in {row["variant"]: row for row in rows}.values():
        looks = [entry for entry in row["curve"] if "error" in entry]
        steps = [entry for entry in row["curve"] if "error" not in entry]
        for column, axis in enumerate(AXES):
            panels[0, column].plot(
                [at[axis] for at in looks], [100 * at["error"] for at in looks], label=row["variant"]
            )
            panels[1, column].plot([at[axis] for at in steps], [at["dual"] for at in steps], label=row["variant"])
    for column, label in enumerate(AXES.values()):
        panels[0, column].set_yscale("log")
        panels[1, column].set_xlabel(label)
        panels[0, column].set_xscale("log")
        panels[1, column].set_xscale("log")
    panels[0, 0].set_ylabel("test error, %")
    panels[1, 0].set_ylabel("dual")
    panels[0, 0].legend()
    figure.suptitle(f"{task}, {machine}, cache of {share:.0%} of the kernel matrix")
    path = folder / f"multiclass-{task}-{machine}-{share:g}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path
