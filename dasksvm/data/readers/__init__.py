"""Readers of the rows of a new data set, from arrays and from files of several formats, in pieces."""

from dasksvm.data.readers.choice import FORMATS, Reading, reader_of
from dasksvm.data.readers.reader import Reader

__all__ = ["FORMATS", "Reader", "Reading", "reader_of"]
