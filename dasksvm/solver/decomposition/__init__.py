"""Decomposition of the whole dual problem in pairs (paper 4; paper 1, section 3.1).

The exact solver in blocks (`blocks.exact_learner`) shares the starting point and the rules with it.

"Paper 4" is Glasmachers and Igel (2006), Maximum-Gain Working Set Selection for SVMs; "paper 1" is Bordes, Ertekin, Weston and
Bottou (2005), Fast Kernel Classifiers with Online and Active Learning.
"""
