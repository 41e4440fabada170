"""Where the rows of a new data set come from: arrays, and files of many kinds, piece by piece.

One module a kind, registered in `formats`. `registry.reader_of` chooses the reader of what a user gave.
"""
