"""Benchmarks. Each writes one JSON row per measurement."""
