"""LASVM (paper 1, section 3): PROCESS and REPROCESS, one example at a time, and finishing."""
