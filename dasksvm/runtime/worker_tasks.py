"""The tasks of the workers. The result of a task depends only on the batches that it names, not on the worker."""

from time import perf_counter
from typing import Any

from distributed import get_worker

from dasksvm.config.blas import one_thread
from dasksvm.runtime.member_cache import replica_of
from dasksvm.runtime.protocol import Post, Scored
from dasksvm.solver.engine.choice import execute
from dasksvm.solver.messages import CandidateBatch


def score_batches(post: Post, sequences: tuple[int, ...], blocks: dict[int, Any]) -> Scored | None:
    """Score some batches of a run; None if the coordinator no longer needs them.

    Parameters
    ----------
    post : Post
    sequences : tuple of int
        Numbers of the batches; the plans are pulled from the coordinator.
    blocks : dict of int to array
        Chunks of the data that a worker cannot read itself.
    """
    start = perf_counter()
    replica = replica_of(post)
    pulled = replica.pull(sequences)
    if pulled is None:
        return None
    pulling = perf_counter() - start
    examples = replica.examples(blocks)
    batches: list[CandidateBatch] = []
    reading = tiling = 0.0
    for order, plan in zip(*pulled, strict=True):
        before = perf_counter()
        targets = examples.targets(plan.rows) if order.targets is None else order.targets
        features = examples.features(plan.rows)
        read = perf_counter()
        with one_thread():
            kernel = replica.introduction.kernel
            batches.append(execute(plan, kernel, features, targets, replica.workspaces.of_calling_thread()))
        reading += read - before
        tiling += perf_counter() - read
    return Scored(get_worker().address, batches, pulling, reading, tiling)
