"""Multi-class machines solved as one problem: the unified framework, its steps and their schedule (paper 5).

"Paper 5" is Trinh (2012), Online learning of multi-class Support Vector Machines. Its *patterns* are examples. A *variable* is a
pair (pattern, class), with the coefficient α of that class.
"""
