"""Kernels and the features that they are computed from, dense and sparse."""
