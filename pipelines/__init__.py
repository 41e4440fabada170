"""Benchmarks: each writes a JSON row a measurement."""
