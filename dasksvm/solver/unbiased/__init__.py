"""Solvers without a bias: LASVM-G and its relatives (paper 2), and tracking by random steps (paper 3)."""
