"""Chooses the reader for an array, a dataframe or a file."""

from pathlib import Path
from typing import Any

import numpy as np

from dasksvm.data.blocks import BadRow
from dasksvm.data.chunked import is_dask, is_sparse
from dasksvm.data.ingest.readers.arrays import ArrayReader, DaskArrayReader, FrameReader, numeric_frame
from dasksvm.data.ingest.readers.formats import FORMATS
from dasksvm.data.ingest.readers.reader import Reader, Reading
from dasksvm.data.paths import local


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
            raise ValueError(error.message("memory", 0, 0)) from None
    return ArrayReader(X if is_sparse(X) else np.asarray(X), y, weight, "memory", names)


def _file_reader(source: str | Path, y: Any, weight: Any, how: Reading) -> Reader:
    path = str(local(source))
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist.")
    kind = how.format or _format_of(path)
    if kind not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}. Got {kind!r} instead.")
    file_format = FORMATS[kind]
    if file_format.named_columns:
        for name, given in (("y", y), ("weight", weight)):
            if not isinstance(given, str | None) and not (name == "y" and given is False):
                raise ValueError(f"{name} must name a column of {path} as text, or be None.")
    return file_format.open(path, y, weight, how)


def _format_of(path: str) -> str:
    name = Path(path).name
    for end in (".gz", ".bz2"):
        name = name.removesuffix(end)
    suffix = Path(name).suffix.lower()
    for kind, file_format in FORMATS.items():
        if suffix in file_format.suffixes:
            return kind
    raise ValueError(f"{path}: the name does not show the format; set format to one of {', '.join(FORMATS)}.")
