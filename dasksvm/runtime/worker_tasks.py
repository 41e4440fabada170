"""The tasks of the workers. The result of a task depends only on the batches that it names, not on the worker."""

from time import perf_counter
from typing import Any

import numpy as np
from distributed import get_worker
from distributed.comm import get_address_host
from numpy.typing import NDArray

from dasksvm.config.blas import one_thread
from dasksvm.runtime.member_cache import member_cache_of
from dasksvm.runtime.protocol import CoordinatorAddress, Scored
from dasksvm.solver.blocks.pieces import some_sums
from dasksvm.solver.engine.choice import execute
from dasksvm.solver.messages import CandidateBatch


def score_batches(coordinator: CoordinatorAddress, sequences: tuple[int, ...], blocks: dict[int, Any]) -> Scored | None:
    """Score some batches of a run; None if the coordinator no longer needs them.

    Parameters
    ----------
    coordinator : CoordinatorAddress
    sequences : tuple of int
        Numbers of the batches; the plans are pulled from the coordinator.
    blocks : dict of int to array
        Chunks of the data that a worker cannot read itself.
    """
    start = perf_counter()
    cache = member_cache_of(coordinator)
    pulled = cache.pull(sequences)
    if pulled is None:
        return None
    pulling = perf_counter() - start
    examples, near = cache.examples(blocks), is_on_this_machine(coordinator)
    batches: list[CandidateBatch] = []
    reading = tiling = 0.0
    for sent, plan in zip(*pulled, strict=True):
        before = perf_counter()
        targets = examples.targets(plan.rows) if sent.targets is None else sent.targets
        features = examples.features(plan.rows)
        read = perf_counter()
        with one_thread():
            kernel = cache.description.kernel
            batches.append(execute(plan, kernel, features, targets, cache.workspaces.of_this_thread(), near))
        reading += read - before
        tiling += perf_counter() - read
    return Scored(get_worker().address, batches, pulling, reading, tiling)


def is_on_this_machine(coordinator: CoordinatorAddress) -> bool:
    """Return whether the coordinator's worker runs on the same machine as the worker that executes this task."""
    return bool(get_address_host(coordinator.address) == get_address_host(get_worker().address))


def compute_sums(coordinator: CoordinatorAddress, number: int, first: int, last: int) -> NDArray[np.float64] | None:
    """Compute some pieces of sums that the coordinator waits for; None if it does not any more.

    Parameters
    ----------
    coordinator : CoordinatorAddress
    number : int
        Number of the sums; the plan is pulled from the coordinator.
    first, last : int
        The range of pieces.
    """
    cache = member_cache_of(coordinator)
    plan = cache.pull_sums(number)
    if plan is None:
        return None
    with one_thread():
        return some_sums(cache.description.kernel, plan, first, last, cache.workspaces.of_this_thread())
