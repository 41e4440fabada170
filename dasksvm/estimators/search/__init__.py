"""Choosing C and γ: the grid that shifts, and a first γ from the data."""
