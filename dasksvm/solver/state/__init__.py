"""The state of a run: the expansion, its working arrays, its kernel rows, and the elementary steps on them."""
