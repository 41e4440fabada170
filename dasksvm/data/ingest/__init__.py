"""From files and arrays to a data set on Zarr: readers, the shuffle, and the writer.

A reader gives rows piece by piece and knows nothing of the data set's layout; the writer knows nothing of file formats.
"""
