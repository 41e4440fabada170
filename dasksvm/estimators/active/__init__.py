"""Active learning: the teacher that queries a pool, the search of the pool, and the loop that asks a person."""
