"""Sources of examples: arrays in memory, Dask arrays, and data sets on Zarr."""

from dasksvm.data.dataset import Dataset

__all__ = ["Dataset"]
