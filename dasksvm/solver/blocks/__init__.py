"""The block engine: LASVM that moves many coefficients per pass over S.

Paper 1's LASVM moves two coefficients at a time, and each step needs their kernel rows over all of S, which therefore have to be
kept. The block engine moves many at a time, and keeps only values that are expensive to compute. It takes batches of examples:

1. *Score*: compute the decision values of the batch, in pieces, against the support vectors of a slightly older version.
2. *Admit* (`admission`): bring the decision value of each promising candidate up to date; the candidate becomes a member with
   α = 0 if it violates, or nearly does, with the bias estimated from the free support vectors.
3. *Round* (`rounds`): choose a working set (the members just admitted, the worst violators, and some of the working set of the
   round before), solve the problem restricted to it, and move the gradients of all members at once.
4. *Evict* the members with α = 0 that would not be admitted now. After a single pass, those evicted are scored again.

Finishing is more rounds, until no pair of members violates by more than τ. Training to convergence alternates between finishing
and looking for examples that violate, for which the decision values of all examples are remembered (`survey`). With several
problems (one for each class, for each pair of classes or for each C), they make their rounds together and share the kernel
values.

Kernel values between members (`kernel_values`) are computed when a round needs them. Those of wide rows are kept in tiles
(`kept_tiles`), as far as a budget allows; those of narrow rows are not, because they are computed in less time than it takes to
write and read them (`keeping`). Three things keep the budget, and whoever computes a value, from changing any bit of a model:
values that may be kept are computed in tiles in which they do not depend on their place (`kernels.uniform`); kernels are
symmetric bit for bit, so a value may be read from the row of either member; and sums are added in the order of the members'
places, whether values are kept or not.

Here belong the learner of two-class problems in blocks, the exact learner that derives from it (`exact_learner`), their rounds,
and the kernel values that they need; what other learners need as well is in `engine` and `state`.
"""
