"""Figures 1, 2 and 4 to 8 of paper 2, from the rows that `pipelines.robust` wrote."""

import json
import statistics
from pathlib import Path
from typing import Any

import matplotlib as mpl

NAMES = {"full": "FULL SVM", "g": "LASVM-G", "nc": "LASVM-NC", "i": "LASVM-I", "lasvm": "LASVM", "svc": "exact SVM"}


def draw(out: Path, folder: Path) -> list[Path]:
    """Plot the curves of each task, its ramp parameters, and the seconds of all tasks.

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
    rows = [row for row in map(json.loads, out.read_text().splitlines()) if row["pipeline"] == "robust"]
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for task in sorted({row["task"] for row in rows}):
        mine = [row for row in rows if row["task"] == task]
        watched = {row["solver"]: row for row in mine if row["watch"]}
        if watched:
            paths.append(_curves(task, watched, folder))
        if {row["ramp"] for row in mine} != {-1.0}:
            paths.append(_ramps(task, [row for row in mine if not row["watch"]], folder))
    return [*paths, _seconds([row for row in rows if not row["watch"]], folder)]


def _curves(task: str, rows: dict[str, dict[str, Any]], folder: Path) -> Path:
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(2, 3, figsize=(15, 8), layout="constrained")
    for name, row in rows.items():
        looks, steps = row["curve"], row["steps"]
        seen, at = [look["seen"] for look in looks], [step["seen"] for step in steps]
        gaps = [(step["seen"], step["gap"] / step["seen"]) for step in steps if step.get("gap") and step["seen"]]
        if gaps:
            panels[0, 0].plot(*zip(*gaps, strict=True), label=NAMES[name])
        panels[0, 1].plot(seen, [look["break_even"] for look in looks], label=NAMES[name])
        panels[0, 2].plot(seen, [100 - look["accuracy"] for look in looks], label=NAMES[name])
        panels[1, 0].plot(seen, [look["support_vectors"] for look in looks], label=NAMES[name])
        panels[1, 1].plot(at, [step["kernel_evaluations"] for step in steps], label=NAMES[name])
        panels[1, 2].plot(at, [step["seconds"] for step in steps], label=NAMES[name])
    titles = (
        "gap of the members / examples",
        "PRBEP, %",
        "test error, %",
        "support vectors",
        "kernel values",
        "seconds",
    )
    for panel, title in zip(panels.ravel(), titles, strict=True):
        panel.set_title(title)
        panel.set_xlabel("examples")
    panels[0, 0].set_yscale("log")
    panels[0, 1].legend()
    return _saved(figure, folder / f"robust-{task}.png", f"{task} (figures 1, 2, 4, 6, 7)")


def _ramps(task: str, rows: list[dict[str, Any]], folder: Path) -> Path:
    from matplotlib import pyplot as plt

    figure, panel = plt.subplots(figsize=(8, 6), layout="constrained")
    # Only the orders with results for all values of s.
    tried = [{row["seed"] for row in rows if row["ramp"] == ramp} for ramp in {row["ramp"] for row in rows}]
    for name in NAMES:
        mine = [row for row in rows if row["solver"] == name and row["seed"] in set.intersection(*tried)]
        points = [
            (
                ramp,
                statistics.mean(row["support_vectors"] for row in mine if row["ramp"] == ramp),
                100 - statistics.mean(row["accuracy"] for row in mine if row["ramp"] == ramp),
            )
            for ramp in sorted({row["ramp"] for row in mine})
        ]
        if not points:
            continue
        panel.plot([point[1] for point in points], [point[2] for point in points], "o-", label=NAMES[name])
        for ramp, count, error in points if len(points) > 1 else []:
            panel.annotate(f"{ramp:g}", (count, error))
    panel.set_xlabel("support vectors")
    panel.set_ylabel("test error, %")
    panel.legend()
    return _saved(figure, folder / f"robust-ramps-{task}.png", f"{task}: values of s (figure 5)")


def _seconds(rows: list[dict[str, Any]], folder: Path) -> Path:
    from matplotlib import pyplot as plt

    tasks = sorted({row["task"] for row in rows})
    figure, panel = plt.subplots(figsize=(10, 5), layout="constrained")
    for at, name in enumerate(NAMES):
        heights = []
        for task in tasks:
            found = [row["seconds"] for row in rows if (row["task"], row["solver"], row["ramp"]) == (task, name, -1.0)]
            heights.append(statistics.mean(found) if found else 0.0)
        panel.bar([x + 0.13 * at for x in range(len(tasks))], heights, 0.13, label=NAMES[name])
    panel.set_yscale("log")
    panel.set_xticks([x + 0.33 for x in range(len(tasks))], tasks)
    panel.set_ylabel("seconds")
    panel.legend()
    return _saved(figure, folder / "robust-seconds.png", "one pass (figure 8)")


def _saved(figure: Any, path: Path, title: str) -> Path:
    from matplotlib import pyplot as plt

    figure.suptitle(title)
    figure.savefig(path, dpi=100)
    plt.close(figure)
    return path
