"""Where the rows of a new data set come from: arrays, and files of many kinds, piece by piece."""

from dasksvm.data.readers.choice import FORMATS, Reading, reader_of
from dasksvm.data.readers.reader import Reader

__all__ = ["FORMATS", "Reader", "Reading", "reader_of"]
