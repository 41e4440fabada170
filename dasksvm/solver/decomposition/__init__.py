"""Solvers of the whole dual problem by decomposition, in pairs and in blocks (paper 4)."""
