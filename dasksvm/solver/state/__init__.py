"""The state of a run: the expansion, its working arrays, its cached kernel rows, and the elementary steps on them.

What belongs here: data structures that several solvers share, and the operations that keep them consistent. Which step is made
next belongs to the package of each solver. "Paper 1" is Bordes, Ertekin, Weston and Bottou (2005), Fast Kernel Classifiers with
Online and Active Learning.
"""
