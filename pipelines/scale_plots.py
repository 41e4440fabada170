"""The picture of docs/scale.md, from the rows that `pipelines.scale sweep` wrote."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

Row = dict[str, Any]


def draw(rows: list[Row], picture: Path) -> None:
    """Plot the time, and the share of it in which the coordinator computes, against the number of workers.

    Parameters
    ----------
    rows : list of dict
        If a run was simulated repeatedly, only its last row is used.
    picture : Path
        File to write; its suffix says in which format.
    """
    mpl.use("agg")
    # A picture that is made again from the same rows is the same file.
    mpl.rcParams["svg.hashsalt"] = "dasksvm"
    mpl.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot as plt

    last = {(row["width"], row["examples"], row["workers"]): row for row in rows}
    widths = sorted({row["width"] for row in rows})
    figure, panels = plt.subplots(
        2, len(widths), figsize=(4.5 * len(widths), 7), sharex=True, sharey="row", squeeze=False, layout="constrained"
    )
    for (above, below), width in zip(panels.T, widths, strict=True):
        for examples in sorted({row["examples"] for row in rows}):
            found = sorted(
                (row for row in last.values() if (row["width"], row["examples"]) == (width, examples)),
                key=lambda row: int(row["workers"]),
            )
            workers = [row["workers"] for row in found]
            above.loglog(workers, [row["seconds"] for row in found], marker=".", label=f"{examples:,} examples")
            below.semilogx(workers, [100 * row["busy"] for row in found], marker=".")
        above.set_title(f"{width} features")
        below.set_xlabel("workers")
        below.set_xticks(sorted({row["workers"] for row in rows}), minor=False)
        below.xaxis.set_major_formatter("{x:.0f}")
        below.set_ylim(0, 105)
    panels[0, 0].set_ylabel("seconds, simulated")
    panels[1, 0].set_ylabel("coordinator computes, % of the time")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, metadata={"Date": None} if picture.suffix == ".svg" else None)
    plt.close(figure)
