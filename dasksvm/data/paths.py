"""Paths and URLs: tell them apart, and create files without replacing existing ones."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

# What remains of a URL that went through pathlib, which collapses the two slashes into one.
LOST_SLASH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")


def is_url(path: str | Path) -> bool:
    """Return whether this is a URL, and not a path of the local file system."""
    return "://" in str(path)


def located(path: str | Path) -> str:
    """Return a URL unchanged, and a path or a `file://` URL as a local path.

    Raises
    ------
    ValueError
        If it is a URL that has lost one of its slashes: taken as a path it would name a folder such as "s3:".
    """
    text = str(path)
    if text.startswith(("file://", "local://")):
        from fsspec.core import strip_protocol

        return str(strip_protocol(text))
    if LOST_SLASH.match(text):
        raise ValueError(f"{text} looks like a URL that lost a slash in a pathlib.Path: pass it as a str.")
    return text


def local(path: str | Path) -> Path:
    """Return the path of a file or folder that has to be on the local file system.

    Raises
    ------
    ValueError
        If it is a URL other than `file://`.
    """
    text = located(path)
    if is_url(text):
        raise ValueError(f"{text} is a URL, but only a local path can be used here.")
    return Path(text)


def refuse_existing(path: Path) -> None:
    """Raise FileExistsError if a file, a folder or a link of this name exists; a broken link counts too."""
    if os.path.lexists(path):
        raise FileExistsError(f"{path} already exists.")


@contextmanager
def created(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder, which is renamed to `path` on success and removed after an error.

    Raises
    ------
    FileExistsError
        If `path` exists, at the beginning or at the end.
    """
    refuse_existing(path)
    # The name is unique among all machines that share the folder, so that no file of another process is touched.
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
