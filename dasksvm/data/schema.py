"""Reads and checks the description of a data set in a Zarr group, which may be damaged or written by others.

Opening a group never runs code from it: it must be of Zarr format 3, its arrays must be numeric, and their codecs must be among
a few that only transform bytes. Only arrays with known names are read. Links in the folder are followed as the file system does.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm.data.array_file import TYPES
from dasksvm.data.blocks import MOST_CLASSES, MOST_FEATURES
from dasksvm.data.statistics import Scaling

VERSION = 2
# Rows of the array `features`; if there is a scaling, its offset and factor follow.
STATISTICS = ("mean", "variance", "minimum", "maximum")
ATTRIBUTE = "dasksvm"
CODECS = ("bytes", "zstd", "gzip", "crc32c")
# Largest size of a chunk or of the labels, and largest number of chunks; larger ones are refused before they are read.
MOST_BYTES, MOST_CHUNKS = 1 << 31, 1 << 22


def read_description(path: str) -> dict[str, Any]:
    """Open a group and return the fields of the data set in it.

    Raises
    ------
    ValueError
        If there is no data set at this path, or if it is incomplete, damaged, or of another version of the format.
    """
    group = open_group(path)
    about = group.attrs.get(ATTRIBUTE)
    if not isinstance(about, dict) or "version" not in about:
        raise ValueError(f"{path} is a Zarr group, but not a dasksvm data set.")
    if about["version"] != VERSION:
        raise ValueError(
            f"{path} has version {about['version']} of the data set format, but this version of dasksvm reads version {VERSION}."
        )
    if about.get("complete") is not True:
        raise ValueError(f"{path} is incomplete: it was not written to the end.")
    try:
        return {"path": path, **_fields(about, group)}
    except KeyError as error:
        raise ValueError(f"{path} is damaged: it has no {error}.") from error
    except Exception as error:  # zarr raises many kinds of errors for damaged JSON and damaged chunks.
        raise ValueError(f"{path} is damaged: {error}") from error


def open_group(path: str) -> Any:
    """Open a group for reading."""
    import zarr

    from dasksvm.data.stores import store_at

    try:
        return zarr.open_group(store_at(path), mode="r", zarr_format=3)
    except FileNotFoundError as error:
        raise ValueError(f"{path} is not a data set: there is no Zarr group at this path.") from error
    except NotADirectoryError as error:
        raise ValueError(f"{path} is not a data set: there is no Zarr group at this path.") from error
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"{path} is not a data set: its Zarr group cannot be read: {error}") from error


def array_of(group: Any, name: str, dtype: Any = None) -> Any:
    """Return an array of a group; it must be numeric, of the expected type, and only use supported codecs."""
    array = group[name]
    codecs = [codec.to_dict()["name"] for codec in array.metadata.codecs]
    unknown = [codec for codec in codecs if codec not in CODECS]
    if unknown or array.metadata.storage_transformers:
        raise ValueError(f"the array {name} has the codecs {codecs}, but only {', '.join(CODECS)} are supported.")
    if array.dtype.kind not in "biuf" or (dtype is not None and array.dtype != dtype):
        raise ValueError(f"the array {name} has the type {array.dtype}, expected {dtype or 'numbers'}.")
    if np.prod([float(size) for size in array.chunks]) * array.dtype.itemsize > MOST_BYTES:
        raise ValueError(f"the array {name} has chunks of the shape {array.chunks}, which are too large.")
    return array


def _fields(about: Mapping[str, Any], group: Any) -> dict[str, Any]:
    rows, width = (_number(size, "shape", 1) for size in about["shape"])
    if width > MOST_FEATURES:
        raise ValueError(f"it has {width} features, more than the {MOST_FEATURES} that are supported.")
    nonzeros, sparse = _number(about["nonzeros"], "nonzeros", 0), _of_type(about, "sparse", bool)
    chunk_rows, column_rows = (_number(about[name], name, 1) for name in ("chunk_rows", "column_rows"))
    if rows // min(chunk_rows, column_rows) > MOST_CHUNKS:
        raise ValueError(f"it has {rows} rows in chunks of {chunk_rows} and {column_rows}: these are too many chunks.")
    classes = _classes(about["classes"], about["class_type"])
    counts = np.array([_number(count, "class_counts", 0) for count in about["class_counts"]], np.int64)
    if len(counts) != len(classes) or (len(classes) and counts.sum() != rows):
        raise ValueError(f"the class counts {counts.tolist()} do not fit {len(classes)} classes and {rows} rows.")
    scaled, shuffled, weighted = (_of_type(about, name, bool) for name in ("scaled", "shuffled", "weighted"))
    names = about["names"]
    if names is not None and not (len(names) == width and all(isinstance(name, str) for name in names)):
        raise ValueError("its feature names are not one text for each feature.")
    described = len(STATISTICS) + (2 if scaled else 0)
    expected: dict[str, tuple[tuple[int, ...], Any]] = {"features": ((described, width), np.float64)}
    if sparse:
        expected |= {"X/indptr": ((rows + 1,), np.int64), "X/indices": ((nonzeros,), np.int32)}
        expected |= {"X/data": ((nonzeros,), None)}
    else:
        expected |= {"X": ((rows, width), None)}
    columns = {"y": (len(classes) > 0, np.uint8), "source": (shuffled, np.int64), "weight": (weighted, np.float64)}
    expected |= {name: ((rows,), dtype) for name, (there, dtype) in columns.items() if there}
    for name, (shape, dtype) in expected.items():
        if name not in group or getattr(group[name], "shape", None) != shape:
            raise ValueError(f"the array {name} does not have the shape {shape}.")
        array_of(group, name, dtype)
    values = group["X/data" if sparse else "X"]
    if not sparse and (min(values.chunks[0], rows), values.chunks[1]) != (chunk_rows, width):
        raise ValueError(f"the array X has chunks of the shape {values.chunks}, expected {(chunk_rows, width)}.")
    if 8 * max(column_rows, described * width, chunk_rows if sparse else 0) > MOST_BYTES:
        raise ValueError(
            f"it has {width} features, and rows in chunks of {chunk_rows} and {column_rows}: these chunks are too large."
        )
    features = group["features"][:]
    scaling = Scaling(*features[len(STATISTICS) :]) if scaled else None
    _check_statistics(features, scaling, sparse)
    return {
        "shape": (rows, width),
        "dtype": values.dtype,
        "sparse": sparse,
        "nonzeros": nonzeros,
        "chunk_rows": chunk_rows,
        "column_rows": column_rows,
        "names": names,
        "classes": classes,
        "class_counts": counts,
        **dict(zip(STATISTICS, features, strict=False)),
        "scaling": scaling,
        "shuffled": shuffled,
        "weighted": weighted,
        "origin": _of_type(about, "origin", str),
    }


def _number(value: Any, name: str, least: int) -> int:
    if type(value) is not int or not least <= value < 1 << 62:
        raise ValueError(f"{name} is {value!r}, expected an integer of at least {least}.")
    return value


def _of_type(about: Mapping[str, Any], name: str, kind: type) -> Any:
    if not isinstance(about[name], kind):
        raise ValueError(f"{name} is {about[name]!r}, expected a value of type {kind.__name__}.")
    return about[name]


def _classes(values: Any, kind: Any) -> NDArray[Any]:
    if not isinstance(values, list) or not isinstance(kind, str) or not TYPES.fullmatch(kind):
        raise ValueError(f"its classes are of the type {kind!r}, which is not supported.")
    dtype = np.dtype(kind)
    python = {"b": bool, "i": int, "u": int, "f": float, "U": str}[dtype.kind]
    if len(values) > MOST_CLASSES or any(type(value) is not python for value in values):
        raise ValueError(f"its classes are not values of the type {kind!r}, or more than {MOST_CLASSES}.")
    if any(isinstance(value, str) and len(value) > dtype.itemsize // 4 for value in values):
        raise ValueError(f"its classes have texts that are longer than those of the type {kind!r}.")
    classes = np.array(values, dtype)
    if not np.all(classes[1:] > classes[:-1]):
        raise ValueError("its classes are not in order, or not distinct.")
    return classes


def _check_statistics(features: NDArray[np.float64], scaling: Scaling | None, sparse: bool) -> None:
    if np.isnan(features).any():
        raise ValueError("its feature statistics contain values that are not a number.")
    if scaling is not None and not (np.isfinite(scaling.offset).all() and np.isfinite(scaling.factor).all()):
        raise ValueError("its scaling has values that are not finite.")
    if scaling is not None and sparse and scaling.offset.any():
        raise ValueError("its scaling would shift sparse rows.")
