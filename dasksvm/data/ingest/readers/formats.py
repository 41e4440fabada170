"""The file formats that can be read, by name: the one place that lists them.

To add one, write a module with its reader and a `FileFormat`, and add a line here.
"""

from typing import TYPE_CHECKING

from dasksvm.solver.registry import Registry

if TYPE_CHECKING:
    from dasksvm.data.ingest.readers.reader import FileFormat

FORMATS: "Registry[FileFormat]" = Registry(
    "format",
    {
        "csv": "dasksvm.data.ingest.readers.text:CSV",
        "svmlight": "dasksvm.data.ingest.readers.text:SVMLIGHT",
        "npy": "dasksvm.data.ingest.readers.files:NPY",
        "npz": "dasksvm.data.ingest.readers.files:NPZ",
        "parquet": "dasksvm.data.ingest.readers.parquet:PARQUET",
        "anndata": "dasksvm.data.ingest.readers.anndata:ANNDATA",
    },
)
