"""A file format for named arrays: checked before use, without pickle, and written completely or not at all.

The file begins and ends with a mark. In between are the bytes of the arrays; then a table in JSON with the type, shape,
position and checksum of each array; then the position, length and checksum of the table.
"""

import json
import math
import os
import re
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from dasksvm.data.paths import local

Arrays = dict[str, NDArray[Any]]
MARK = b"dasksvm\n"
# Position, length and checksum of the table; the mark follows.
TAIL = struct.Struct("<QQI")
# Booleans, numbers and text, but no Python objects.
TYPES = re.compile(r"[<|](b1|[iu][1248]|f[248]|U[1-9][0-9]{0,5})")
# Bytes that are written and added to the checksum at a time, so that they are still in the CPU's cache for the checksum.
PIECE = 1 << 20
# Largest length of a table in bytes.
TABLE = 64 << 20
HIGHEST, SURROGATES = 0x10FFFF, (0xD800, 0xDFFF)


def write(path: str | Path, kind: str, version: int, about: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write arrays to a file; an existing file is replaced when all is written.

    Parameters
    ----------
    path : str or Path
    kind : str
        What the file contains, which readers check.
    version : int
        Version of the meaning of `about` and the arrays.
    about : mapping
        Values that JSON can represent.
    arrays : mapping of str to ndarray
        Arrays of booleans, numbers or text.
    """
    with replacing(path) as file:
        file.write(MARK)
        table = [_put(file, name, np.asarray(array)) for name, array in arrays.items()]
        header = {"kind": kind, "version": version, "about": dict(about), "arrays": table}
        text, start = json.dumps(header).encode(), file.tell()
        if len(text) > TABLE:
            raise ValueError(f"a table of {len(text)} bytes is too long for a file: store long values as arrays")
        file.write(text + TAIL.pack(start, len(text), zlib.crc32(text)) + MARK)


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """Open a temporary file for writing, which is renamed to `path` when everything is written and on the disk."""
    target = local(path)
    part = Path(f"{target}.{uuid4().hex[:8]}.part")
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def read(path: str | Path, kind: str, versions: Collection[int]) -> tuple[dict[str, Any], Arrays]:
    """Read a file that `write` has written.

    Parameters
    ----------
    path : str or Path
    kind : str
    versions : collection of int
        The versions that the caller can read.

    Returns
    -------
    about : dict
    arrays : dict of str to ndarray

    Raises
    ------
    ValueError
        If the file has another kind or version, or is damaged; the message says which.
    """
    with Path(path).open("rb") as file:
        try:
            header, end = _header(file)
            if header["kind"] != kind:
                raise ValueError(f"it is a {header['kind']}, not a {kind}")
            if header["version"] not in versions:
                raise ValueError(
                    f"it has version {header['version']} of the format, and this version of dasksvm reads {max(versions)}"
                )
            about = header["about"]
            if not isinstance(about, dict):
                raise ValueError("its table is damaged")
            return about, _arrays(file, header["arrays"], end)
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError, struct.error) as error:
            raise ValueError(f"its table is damaged ({type(error).__name__})") from error


def _put(file: BinaryIO, name: str, array: NDArray[Any]) -> dict[str, Any]:
    array = np.ascontiguousarray(array).reshape(array.shape)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if not TYPES.fullmatch(array.dtype.str):
        raise TypeError(f"{name} has the type {array.dtype}, which cannot be written to a file")
    start, total = file.tell(), 0
    data = array.reshape(-1).view(np.uint8).data
    for at in range(0, len(data), PIECE):
        piece = data[at : at + PIECE]
        total = zlib.crc32(piece, total)
        file.write(piece)
    return {"name": name, "dtype": array.dtype.str, "shape": list(array.shape), "start": start, "crc32": total}


def _header(file: BinaryIO) -> tuple[dict[str, Any], int]:
    """Read the table; return it and the position at which the arrays end."""
    size = file.seek(0, os.SEEK_END)
    least = len(MARK) + TAIL.size + len(MARK)
    file.seek(0)
    if size < least or file.read(len(MARK)) != MARK:
        raise ValueError("it does not begin with the mark of a dasksvm file")
    file.seek(size - TAIL.size - len(MARK))
    tail = file.read()
    start, length, total = TAIL.unpack(tail[: TAIL.size])
    if tail[TAIL.size :] != MARK or length > TABLE or start + length + least - len(MARK) != size:
        raise ValueError("it is not complete")
    file.seek(start)
    text = file.read(length)
    if zlib.crc32(text) != total:
        raise ValueError("its table is damaged")
    header = json.loads(text)
    if not isinstance(header, dict):
        raise ValueError("its table is damaged")
    return header, start


def _arrays(file: BinaryIO, table: list[dict[str, Any]], end: int) -> Arrays:
    """Read the arrays, which must follow each other: no byte of the file belongs to two of them."""
    arrays, at = {}, len(MARK)
    for entry in table:
        arrays[str(entry["name"])] = array = _get(file, entry, at, end)
        at += array.nbytes
    if len(arrays) != len(table):
        raise ValueError("its table lists an array twice")
    return arrays


def _get(file: BinaryIO, entry: dict[str, Any], at: int, end: int) -> NDArray[Any]:
    """Read the array that begins at position `at`; its size is checked against the file before memory is allocated."""
    name, shape, start = entry["name"], entry["shape"], entry["start"]
    if not TYPES.fullmatch(entry["dtype"]) or any(type(n) is not int or n < 0 for n in [*shape, start]):
        raise ValueError(f"its table has an invalid entry for {name!r}")
    dtype = np.dtype(entry["dtype"])
    size = math.prod(shape) * dtype.itemsize
    if start != at:
        raise ValueError(f"its table has an invalid entry for {name!r}")
    if start + size > end:
        raise ValueError(f"{name!r} is larger than the file")
    array = np.empty(shape, dtype)
    data = array.reshape(-1).view(np.uint8).data
    file.seek(start)
    total = 0
    for at in range(0, size, PIECE):
        piece = data[at : at + PIECE]
        if file.readinto(piece) != len(piece):  # type: ignore[attr-defined]
            raise ValueError("it is not complete")
        total = zlib.crc32(piece, total)
    if total != entry["crc32"]:
        raise ValueError(f"{name!r} is damaged: its checksum is wrong")
    if dtype.kind == "U" and not _is_text(array.reshape(-1).view(np.uint32)):
        raise ValueError(f"{name!r} is not valid text")
    if dtype.kind == "b" and array.reshape(-1).view(np.uint8).max(initial=0) > 1:
        raise ValueError(f"{name!r} has values that are not booleans")
    return array


def _is_text(points: NDArray[np.uint32]) -> bool:
    surrogate = (points >= SURROGATES[0]) & (points <= SURROGATES[1])
    return bool(points.max(initial=0) <= HIGHEST and not surrogate.any())
