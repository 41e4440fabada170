"""What all solvers share: the learner as a state machine, the computation of its plans, and the selection of examples.

What belongs here: code that does not depend on which steps a solver makes. The steps, and the learner that makes them, are in
the package of each solver. "Paper 1" is Bordes, Ertekin, Weston and Bottou (2005), Fast Kernel Classifiers with
Online and Active Learning.
"""
