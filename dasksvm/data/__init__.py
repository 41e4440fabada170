"""Where the examples come from: data sets on Zarr, arrays in memory, Dask arrays; and the paths and stores they lie at.

How a data set is written is in `ingest`. What is done with examples, training or prediction, does not belong here.
"""
