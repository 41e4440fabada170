"""Running a learner in this process: the executor, what watches a run, snapshots and timings.

The executor is the specification of `dasksvm.runtime`, which does the same on a cluster.
"""
