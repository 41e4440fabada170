"""Solvers without a bias: LASVM-G and its relatives (paper 2), and tracking the optimum by random steps (paper 3).

Without a bias there is no equality constraint, so that a step moves a single coefficient. "Paper 2" is Ertekin, Bottou and Giles
(2011), Nonconvex Online Support Vector Machines; "paper 3" is Usunier, Bordes and Bottou (2010), Guarantees for Approximate
Incremental SVMs. α and g have the sign of the label, as in paper 1 (equation 5).
"""
