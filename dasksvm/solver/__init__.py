"""The solvers: NumPy and numba only. No Dask, no scikit-learn, no files, no clock.

A learner owns the state of a run. It returns plans, which describe computations, and applies their results in order. An executor
carries out the plans (`training/` in one process, `runtime/` on a cluster). Plans and results are defined in `messages`.

"Paper n" in this package is one of the following; section, algorithm and equation numbers are the paper's own.

1. Bordes, Ertekin, Weston, Bottou (2005): Fast Kernel Classifiers with Online and Active Learning. JMLR 6.
2. Ertekin, Bottou, Giles (2011): Nonconvex Online Support Vector Machines. IEEE TPAMI 33(2).
3. Usunier, Bordes, Bottou (2010): Guarantees for Approximate Incremental SVMs. AISTATS, PMLR 9.
4. Glasmachers, Igel (2006): Maximum-Gain Working Set Selection for SVMs. JMLR 7.
5. Trinh (2012): Online learning of multi-class Support Vector Machines. Thesis.
"""
