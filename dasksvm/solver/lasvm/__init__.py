"""LASVM (paper 1, section 3): PROCESS and REPROCESS, one example at a time, and finishing.

"Paper 1" is Bordes, Ertekin, Weston and Bottou (2005), Fast Kernel Classifiers with Online and Active Learning.
"""
