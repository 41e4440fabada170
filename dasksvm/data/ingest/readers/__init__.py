"""Where the rows of a new data set come from: arrays, and files of many kinds, piece by piece.

One module a kind, registered in `registry`.
"""

from dasksvm.data.ingest.readers.reader import Reader
from dasksvm.data.ingest.readers.registry import FORMATS, Reading, reader_of

__all__ = ["FORMATS", "Reader", "Reading", "reader_of"]
