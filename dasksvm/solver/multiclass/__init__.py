"""Multi-class machines in one problem: the unified framework, its steps and their schedule (paper 5)."""
