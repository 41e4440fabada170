"""Write generated data as files of every format, and measure how fast they are ingested.

`python -m pipelines.ingest --megabytes 400`
"""

import shutil
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from dasksvm import Dataset
from dasksvm.config import threads
from dasksvm.data.ingest.readers.formats import FORMATS
from pipelines.rows import environment, timed, write

WIDTH = 100
# Approximate bytes per value in each format, from which the number of rows follows.
VALUE_BYTES = {"csv": 9, "svmlight": 11, "npy": 4, "npz": 4, "parquet": 4, "anndata": 4}


def made(format: str, rows: int, folder: Path) -> tuple[str, Any]:
    """Write rows as a file of a format, unless it exists; return its path and the value of y."""
    path = folder / f"{rows}.{ {'svmlight': 'svm', 'anndata': 'zarr'}.get(format, format) }"
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, rows)
    if not path.exists():
        _write(format, path, rng.normal(size=(rows, WIDTH)).astype(np.float32), y)
    return str(path), {"npy": y, "anndata": "label"}.get(format)


def _write(format: str, path: Path, X: NDArray[np.float32], y: NDArray[np.int64]) -> None:
    match format:
        case "npy":
            np.save(path, X)
        case "npz":
            np.savez(path, X=X, y=y)
        case "anndata":
            import zarr

            group = zarr.open_group(str(path), mode="w")
            group.create_array("X", data=X)
            group.create_group("obs").create_array("label", data=y)
        case "parquet":
            import pandas as pd

            columns = [f"f{at}" for at in range(WIDTH)]
            pd.DataFrame(X, columns=columns).assign(y=y).to_parquet(path, row_group_size=50_000)
        case "csv":
            with path.open("w") as file:
                for row, label in zip(X, y, strict=True):
                    file.write(",".join([f"{value:.5f}" for value in row]) + f",{label}\n")
        case "svmlight":
            with path.open("w") as file:
                for row, label in zip(X, y, strict=True):
                    file.write(f"{label} " + " ".join([f"{at}:{value:.5f}" for at, value in enumerate(row, 1)]) + "\n")
        case _:
            raise click.UsageError(f"rows cannot be written as {format!r}.")


@click.command()
@click.option("--formats", default=",".join(FORMATS), show_default=True)
@click.option("--megabytes", default=400, show_default=True, help="Approximate size of the input.")
@click.option("--folder", type=click.Path(path_type=Path), default=Path("runs/ingest"), show_default=True)
@click.option("--repeats", default=3, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs/ingest.jsonl"), show_default=True)
def main(formats: str, megabytes: int, folder: Path, repeats: int, out: Path) -> None:
    """Ingest generated data with shuffling, on the threads of this process."""
    folder.mkdir(parents=True, exist_ok=True)
    for format in formats.split(","):
        source, y = made(format, int(megabytes * 1e6 / WIDTH / VALUE_BYTES[format]), folder)
        files = [Path(source)] if Path(source).is_file() else [f for f in Path(source).rglob("*") if f.is_file()]
        size = sum(file.stat().st_size for file in files) / 1e6
        found: list[dict[str, Any]] = []
        for _ in range(repeats):
            target = folder / f"{time.time_ns()}.zarr"
            _, took = timed(partial(Dataset.create, target, source, y, random_state=0))
            shutil.rmtree(target)
            row: dict[str, Any] = {"measure": "ingest", "format": format, "megabytes": size, "threads": threads()}
            found.append(row | {name: took[name] for name in ("seconds", "cpu_seconds")})
            write(out, found[-1] | environment())
        seconds, cpu = (statistics.median(row[name] for row in found) for name in ("seconds", "cpu_seconds"))
        click.echo(
            f"{format}: {size:.0f} MB in {seconds:.1f} s, {size / seconds:.0f} MB/s, {size / cpu:.0f} MB per second of CPU"
        )


if __name__ == "__main__":
    main()
