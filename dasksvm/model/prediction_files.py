"""Write the predictions for a data set to a CSV or Parquet file or a Zarr group, completely or not at all."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.data.dataset import Dataset
from dasksvm.data.ingest.writer import NO_ROOM
from dasksvm.data.paths import created, local
from dasksvm.model.kernel_model import KernelModel
from dasksvm.model.prediction import Predicted, Watch, blocks, chunks_at_once
from dasksvm.solver.kernels.features import Ints

SUFFIXES = (".zarr", ".csv", ".parquet")
FORMAT, VERSION = "dasksvm-predictions", 1
# Predictions of shuffled rows are sorted in memory into the order of the source if they take at most this many bytes.
SORTED_BYTES = 1 << 28


class Written(NamedTuple):
    """Summary of a written file: number of rows predicted as each class, shape (c,), and whether rows are in source order."""

    counts: Ints
    sorted: bool


def write(model: KernelModel, data: Dataset, out: str, *, threads: int, watch: Watch) -> Written:
    """Write the row number in the source, the predicted label and the decision values of every row.

    A Zarr group has the arrays `row`, `label` (numbers of the classes in its attribute `classes`) and `decision`, of shape
    (n, P). If its rows stay in the order of the data set, the workers write it.

    Parameters
    ----------
    model : KernelModel
    data : Dataset
    out : str
        A local path that does not exist. Its suffix, one of `SUFFIXES`, decides the format.
    threads : int
        Number of threads of the cluster that computes; 0 if this process computes.
    watch : callable
        See `Watch`.
    """
    together = chunks_at_once(threads)
    small = len(data) * (2 + len(model.intercepts)) * 8 <= SORTED_BYTES
    ordered = not data.shuffled or small
    with _whole(local(out).absolute()) as part:
        if out.endswith(".zarr") and (not data.shuffled or not small):
            counts = _write_chunks(model, data, part, together, watch)
        else:
            table = _counted(blocks(model, data, together), len(data), watch)
            table = _in_order(table, _step(data)) if data.shuffled and small else table
            counts = WRITERS[Path(out).suffix](part, model, data, table)
    return Written(counts, ordered)


@contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """Yield a temporary path next to `out`, which is renamed to `out` when all is written."""
    if not out.parent.is_dir():
        raise FileNotFoundError(f"{out} cannot be written: its folder does not exist.")
    try:
        with created(out) as part:
            yield part
    except OSError as error:
        if error.errno in NO_ROOM:
            raise OSError(f"{out} cannot be written: {error.strerror}.") from error
        raise


def _counted(table: Iterator[Predicted], rows: int, watch: Watch) -> Iterator[Predicted]:
    done = 0
    for block in table:
        yield block
        done += len(block.rows)
        watch("predicting", done, done / rows)


def _in_order(table: Iterator[Predicted], step: int) -> Iterator[Predicted]:
    """Sort all rows into the order of the source, and yield `step` rows at a time."""
    rows, codes, values = (np.concatenate(column) for column in zip(*table, strict=True))
    order = np.argsort(rows)
    for start in range(0, len(order), step):
        some = order[start : start + step]
        yield Predicted(rows[some], codes[some], values[some])


def _names(model: KernelModel) -> list[str]:
    names = [f"decision {label}" for label in model.deciders()]
    return ["row", "label", *(names if len(names) > 1 else ["decision"])]


def _count(model: KernelModel, codes: Ints) -> Ints:
    return np.bincount(codes, minlength=len(model.classes))


def _write_csv(part: Path, model: KernelModel, data: Dataset, table: Iterator[Predicted]) -> Ints:
    counts = np.zeros(len(model.classes), np.int64)
    with part.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(_names(model))
        for rows, codes, values in table:
            lines.writerows(zip(rows.tolist(), model.classes[codes].tolist(), *values.T.tolist(), strict=True))
            counts += _count(model, codes)
    return counts


def _write_parquet(part: Path, model: KernelModel, data: Dataset, table: Iterator[Predicted]) -> Ints:
    """Write each block as a row group."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install 'dasksvm[parquet]'.") from None
    labels = pa.array(model.classes.tolist())
    kinds = [pa.int64(), labels.type, *(pa.float64() for _ in model.intercepts)]
    schema = pa.schema(list(zip(_names(model), kinds, strict=True)))
    counts = np.zeros(len(model.classes), np.int64)
    with pq.ParquetWriter(part, schema) as file:
        for rows, codes, values in table:
            columns = [pa.array(rows), labels.take(pa.array(codes)), *map(pa.array, np.ascontiguousarray(values.T))]
            file.write_table(pa.table(columns, schema=schema))
            counts += _count(model, codes)
    return counts


def _write_zarr(part: Path, model: KernelModel, data: Dataset, table: Iterator[Predicted]) -> Ints:
    arrays = _arrays(part, model, data, "source")
    counts, start = np.zeros(len(model.classes), np.int64), 0
    for block in table:
        for array, column in zip(arrays, block, strict=True):
            array[start : start + len(column)] = column
        start += len(block.rows)
        counts += _count(model, block.codes)
    return counts


WRITERS = {".csv": _write_csv, ".parquet": _write_parquet, ".zarr": _write_zarr}


def _write_chunks(model: KernelModel, data: Dataset, part: Path, together: int, watch: Watch) -> Ints:
    """Let the tasks that predict also write; each of them writes whole chunks of the new arrays."""
    from dask.base import compute
    from dask.delayed import delayed

    _arrays(part, model, data, "stored" if data.shuffled else "source")
    values = model.decision_function(data).to_delayed()[:, 0]
    each = -(-_step(data) // data.chunk_rows)
    shared = delayed((str(part), model, data), pure=True, traverse=False)
    tasks = [
        delayed(_put)(shared, at * data.chunk_rows, list(values[at : at + each])) for at in range(0, len(values), each)
    ]
    counts = np.zeros(len(model.classes), np.int64)
    step = -(-together // each)
    for at in range(0, len(tasks), step):
        counts += sum(compute(*tasks[at : at + step]))
        done = min((at + step) * each * data.chunk_rows, len(data))
        watch("predicting", done, done / len(data))
    return counts


def _step(data: Dataset) -> int:
    """Return the number of rows of a chunk of the new arrays: whole chunks of the data, as in the array of the labels."""
    return min(data.column_rows, len(data))


def _arrays(part: Path, model: KernelModel, data: Dataset, order: str) -> tuple[Any, Any, Any]:
    import zarr

    group = zarr.open_group(str(part), mode="w-")
    rows, problems = len(data), len(model.intercepts)
    step = _step(data)
    # Zarr reads a missing chunk as the fill value, and does not store chunks that contain nothing else. So the fill value is one
    # that no result has.
    row = group.create_array("row", shape=(rows,), chunks=(step,), dtype=np.int64, fill_value=-1)
    kind = np.min_scalar_type(len(model.classes) - 1)
    label = group.create_array("label", shape=(rows,), chunks=(step,), dtype=kind, fill_value=np.iinfo(kind).max)
    label.attrs["classes"] = model.classes.tolist()
    decision = group.create_array(
        "decision", shape=(rows, problems), chunks=(step, problems), dtype=np.float64, fill_value=np.nan
    )
    decision.attrs["deciders"] = model.deciders()
    group.attrs.update({"format": FORMAT, "version": VERSION, "data": data.path, "order": order})
    return row, label, decision


def _put(shared: tuple[str, KernelModel, Dataset], start: int, parts: list[NDArray[np.float64]]) -> Ints:
    """Write the predictions for some chunks; return the number of rows predicted as each class."""
    import zarr

    path, model, data = shared
    values = np.concatenate(parts)
    codes, ids = model.codes(values), np.arange(start, start + len(values))
    group: Any = zarr.open_group(path, mode="r+")
    for name, column in (("row", data.source_rows(ids)), ("label", codes), ("decision", values)):
        group[name][start : start + len(values)] = column
    return _count(model, codes)
