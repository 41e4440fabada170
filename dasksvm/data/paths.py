"""Paths and URLs: which of the two a text is, and how to write something new without replacing what exists."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

# What pathlib makes of a URL: it takes the two slashes for one.
LOST_SLASH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")


def is_url(path: str | Path) -> bool:
    """Tell whether this names something at a store other than the local file system."""
    return "://" in str(path)


def located(path: str | Path) -> str:
    """Give a URL as it is, and a path, or a `file://` URL, as a local path.

    Raises
    ------
    ValueError
        If it is a URL that has lost one of its slashes: as a path it would mean a folder called, say, "s3:".
    """
    text = str(path)
    if text.startswith(("file://", "local://")):
        from fsspec.core import strip_protocol

        return str(strip_protocol(text))
    if LOST_SLASH.match(text):
        raise ValueError(f"{text} looks like a URL that has lost a slash, as in a pathlib.Path: give it as a str.")
    return text


def local(path: str | Path) -> Path:
    """Give the local path of a file or folder that cannot be at a URL.

    Raises
    ------
    ValueError
        If it is a URL of another store than the local file system.
    """
    text = located(path)
    if is_url(text):
        raise ValueError(f"{text} is a URL, and only a local path can be used here.")
    return Path(text)


def refuse_existing(path: Path) -> None:
    """Raise FileExistsError if there is a file, a folder or a link of this name, even one that leads nowhere."""
    if os.path.lexists(path):
        raise FileExistsError(f"{path} is there already.")


@contextmanager
def created(path: Path) -> Iterator[Path]:
    """Give a path beside a new one, whose name it gets once everything is written; after an error it is removed.

    Raises
    ------
    FileExistsError
        If the new one exists, before anything is written or at the end.
    """
    refuse_existing(path)
    # The name is unique among all machines that share the folder: nobody else's file is written to, or removed.
    part = path.with_name(f".{path.name}.{uuid4().hex[:8]}.part")
    try:
        yield part
        refuse_existing(path)
        part.rename(path)
    finally:
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)
