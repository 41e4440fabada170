"""Chooses the reader for an array, a dataframe or a file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dasksvm.data.blocks import BadRow
from dasksvm.data.chunked import is_dask, is_sparse
from dasksvm.data.ingest.readers.anndata import AnnDataReader
from dasksvm.data.ingest.readers.arrays import ArrayReader, DaskArrayReader, FrameReader, numeric_frame
from dasksvm.data.ingest.readers.files import NpzReader, npy_reader
from dasksvm.data.ingest.readers.parquet import ParquetReader
from dasksvm.data.ingest.readers.reader import Reader
from dasksvm.data.ingest.readers.text import CsvReader, SvmlightReader
from dasksvm.data.paths import local

FORMATS = ("csv", "svmlight", "npy", "npz", "parquet", "anndata")
# Formats whose labels and weights are arrays, and not named columns.
ARRAYS = ("npy", "npz")
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".npy": "npy",
    ".npz": "npz",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".h5ad": "anndata",
    ".zarr": "anndata",
}


@dataclass(frozen=True)
class Reading:
    """Options for reading a file that do not follow from its name or content (see `Dataset.create`)."""

    format: str | None = None
    header: bool | None = None
    features: int | None = None
    zero_based: bool = False
    dtype: str = "float32"


def reader_of(X: Any, y: Any, weight: Any, how: Reading) -> Reader:
    """Return the reader for an array, a dataframe or a file."""
    if isinstance(X, (str, Path)):
        return _file_reader(X, y, weight, how)
    if is_dask(X):
        if not hasattr(X, "to_dask_array"):
            return DaskArrayReader(X, y, weight)
        if isinstance(y, str) or y is False:
            return FrameReader(X, y, weight)
        raise ValueError(
            "for a Dask dataframe X, y must be the name of a column or False; to pass y as an array, use "
            "X.to_dask_array(lengths=True)."
        )
    names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
    if names is not None and hasattr(X, "isna"):
        try:
            X = numeric_frame(X)
        except BadRow as error:
            raise ValueError(error.told("memory", 0, 0)) from None
    return ArrayReader(X if is_sparse(X) else np.asarray(X), y, weight, "memory", names)


def _file_reader(source: str | Path, y: Any, weight: Any, how: Reading) -> Reader:
    path = str(local(source))
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist.")
    kind = how.format or _format_of(path)
    if kind not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}. Got {kind!r} instead.")
    if kind not in ARRAYS:
        for name, given in (("y", y), ("weight", weight)):
            if not isinstance(given, str | None) and not (name == "y" and given is False):
                raise ValueError(f"{name} must be the name of a column of {path}, or None.")
    match kind:
        case "npy":
            return npy_reader(path, y, weight)
        case "npz":
            return NpzReader(path, y, weight)
        case "csv":
            return CsvReader(path, y, weight, how.header, how.dtype)
        case "parquet":
            return ParquetReader(path, y, weight)
        case "anndata":
            return AnnDataReader(path, y, weight)
        case "svmlight":
            if isinstance(y, str) or weight is not None:
                raise ValueError(f"y and weight must be None: in {path} each line begins with its label.")
            return SvmlightReader(path, y is None, how.features, how.zero_based, how.dtype)
        case _:
            raise ValueError(f"{path}: the format {kind!r} has no reader.")


def _format_of(path: str) -> str:
    name = Path(path).name
    for end in (".gz", ".bz2"):
        name = name.removesuffix(end)
    kind = SUFFIXES.get(Path(name).suffix.lower())
    if kind is None:
        raise ValueError(f"{path}: the name does not show the format; set format to one of {', '.join(FORMATS)}.")
    return kind
