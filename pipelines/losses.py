"""Measure what the loss of a worker costs, with and without snapshots: kills a worker process during a training.

`python -m pipelines.losses --task mnist8 --epochs 4`
"""

import os
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import click
from distributed import Client

from dasksvm import Dataset, LaSVC, train
from dasksvm.data import array_file
from dasksvm.runtime import local_cluster, workers_of
from dasksvm.training.snapshots import KIND, VERSION
from pipelines.cluster import digest, stored
from pipelines.rows import environment, write
from pipelines.tasks import load

LOSSES = ("nobody", "compute", "coordinator")


class Killer:
    """A callback that kills a worker after a share of the examples, and records when.

    Parameters
    ----------
    client : Client
    resource : str
        What the worker offers; no worker does for "nobody".
    at : int
        Examples seen.
    kept : Path
        Folder of the snapshots.
    """

    def __init__(self, client: Client, resource: str, at: int, kept: Path) -> None:
        self.client, self.resource, self.at, self.kept = client, resource, at, kept
        self.struck = self.last = self.away = self.redone = 0.0

    def __call__(self, progress: Any, seconds: float) -> bool:
        """Kill the worker once; then record the longest time without a new result."""
        if self.struck:
            self.away = max(self.away, seconds - self.last)
        self.last = seconds
        if not self.struck and progress.seen >= self.at:
            workers = workers_of(self.client)
            address = next((each for each, about in workers.items() if self.resource in about["resources"]), None)
            if address is not None:
                os.kill(self.client.run(os.getpid, workers=[address])[address], signal.SIGKILL)
                snapshots = sorted(self.kept.glob("snapshot-*"))
                if self.resource == "coordinator":
                    found = array_file.read(snapshots[-1], KIND, (VERSION,))[0]["memo"]["seconds"] if snapshots else 0.0
                    self.redone = seconds - found
            self.struck = seconds
        return False


def measure(data: Dataset, estimator: LaSVC, loss: str, every: float) -> dict[str, Any]:
    """Train on a new cluster that has compiled, and lose a worker in the middle."""
    total = len(data) * estimator.epochs
    with (
        tempfile.TemporaryDirectory() as folder,
        local_cluster(2) as made,
        Client(made, direct_to_workers=True) as client,
    ):
        train(data, estimator.set_params(max_examples=len(data) // 4), client=client)
        estimator.set_params(max_examples=None)
        kept = Path(folder) / "kept"
        killer = Killer(client, loss, total // 2, kept)
        start = time.perf_counter()
        run = train(data, estimator, client=client, checkpoint=kept, every=every, callbacks=[killer])
        seconds = time.perf_counter() - start
        sizes = [path.stat().st_size / 1e6 for path in kept.glob("snapshot-*")]
    return {
        "loss": loss,
        "seconds": seconds,
        "nothing_new_for": killer.away,
        "redone": killer.redone,
        "keeping": run.timings.keeping,
        "snapshot_mb": max(sizes, default=0.0),
        "digest": digest(run.estimator),
    }


@click.command()
@click.option("--task", default="mnist8", show_default=True)
@click.option("--data", type=click.Path(path_type=Path), default=Path("../shared/data"), show_default=True)
@click.option("--store", type=click.Path(path_type=Path), default=Path("runs/zarr"), show_default=True)
@click.option("--epochs", default=4, show_default=True)
@click.option("--every", default=5.0, show_default=True, help="Seconds between snapshots.")
@click.option("--repeats", default=3, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs/losses.jsonl"), show_default=True)
def main(task: str, data: Path, store: Path, epochs: int, every: float, repeats: int, out: Path) -> None:
    """Compare trainings that lose no worker, a compute worker, or the coordinator's worker."""
    zarr, parameters = stored(load(task, data), store)
    estimator = LaSVC(random_state=0, epochs=epochs, **parameters)
    for loss in LOSSES:
        found = [measure(zarr, estimator, loss, every) for _ in range(repeats)]
        for row in found:
            write(
                out,
                {
                    "pipeline": "losses",
                    "task": task,
                    "epochs": epochs,
                    "every": every,
                    **row,
                    **environment(),
                },
            )
        print(
            f"{loss:12} {statistics.median(row['seconds'] for row in found):6.2f} s; nothing new for "
            f"{statistics.median(row['nothing_new_for'] for row in found):.2f} s, of it "
            f"{statistics.median(row['redone'] for row in found):.2f} s of work since the snapshot; "
            f"snapshots of {found[0]['snapshot_mb']:.0f} MB took "
            f"{statistics.median(row['keeping'] / row['seconds'] for row in found):.2%}; "
            f"{len({row['digest'] for row in found})} model"
        )


if __name__ == "__main__":
    main()
