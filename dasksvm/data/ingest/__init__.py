"""From files and arrays to a data set on Zarr: readers, the shuffle, and the writer.

A reader gives rows piece by piece and knows nothing of Zarr; the writer knows nothing of file formats.
"""
