"""Where the examples come from: arrays in memory, Dask arrays, data sets on Zarr."""

from dasksvm.data.dataset import Dataset

__all__ = ["Dataset"]
