"""Sums that workers compute for the coordinator: the same bits, whatever becomes of the workers."""

import os
import signal
import time

import dask
import dask.array as da
import numpy as np
import pytest

from dasksvm import LaSVC, train
from dasksvm.runtime import shared_sums, worker_tasks
from dasksvm.runtime.shared_sums import PAUSE, SharedSums
from tests.clusters import cluster, compute_workers, digest, noisy, recovered

# Every sum is shared, as soon as that saves anything at all.
SHARED = {"dasksvm.least-saving": "0s"}


def problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 5))
    y = np.where(X[:, 0] + X[:, 1] ** 2 + 0.5 * rng.normal(size=2500) > 0.8, "yes", "no")
    return da.from_array(X, chunks=(500, 5)), y


SOLVER = LaSVC(C=2.0, gamma=0.1, engine="blocks", epochs=2, random_state=0)


@pytest.fixture
def counted(monkeypatch):
    """A list with True for sums that were shared, and False for those that were not."""
    found, call = [], SharedSums.__call__

    def counting(self, plan):
        sums = call(self, plan)
        found.append(sums is not None)
        return sums

    monkeypatch.setattr(SharedSums, "__call__", counting)
    return found


@pytest.mark.parametrize("epochs", [2, "converged"])
def test_shared_sums_are_those_of_the_coordinator(counted, epochs):
    solver = LaSVC(C=2.0, gamma=0.1, engine="blocks", epochs=epochs, random_state=0)
    alone = train(problem(), solver).estimator
    for workers in (2, 3):
        with dask.config.set(SHARED), cluster(workers) as client:
            assert digest(train(problem(), solver, client=client).estimator) == digest(alone)
    assert all(counted)
    assert counted


def test_small_sums_are_not_shared(counted):
    with cluster(2) as client:
        train(problem(), SOLVER, client=client)
    assert counted
    assert not any(counted)


def failing(*arguments):
    raise RuntimeError("a fault of the worker")


def out_of_date(*arguments):
    return None


def late(*arguments):
    time.sleep(1.0)
    return "nothing that could be added"


@pytest.mark.parametrize("fault", [failing, out_of_date, late])
def test_the_coordinator_computes_what_workers_do_not(counted, monkeypatch, fault):
    """And it gives them no sums for a while."""
    monkeypatch.setattr(shared_sums, "compute_sums", fault)
    with dask.config.set(SHARED | {"dasksvm.late-after": "100ms"}), cluster(2) as client:
        found = train(problem(), SOLVER, client=client).estimator
    assert digest(found) == digest(train(problem(), SOLVER).estimator)
    assert counted[0]
    assert len(counted) > 3
    assert not any(counted[1:PAUSE])


def die_in_sums(number):
    """Run this on a worker: its process is killed in the middle of its `number`th part of sums."""
    compute, left = worker_tasks.some_sums, [number]

    def fatal(*arguments):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return compute(*arguments)

    worker_tasks.some_sums = fatal


@pytest.mark.cluster
def test_a_worker_is_killed_while_it_computes_sums(tmp_path):
    data = noisy(tmp_path / "noisy.zarr")
    solver = LaSVC(C=3.0, engine="blocks", random_state=1)
    alone = train(data, solver).estimator
    with dask.config.set(SHARED | {"dasksvm.late-after": "300ms"}), cluster(2, processes=True) as client:
        for number in (1, 4):
            before = client.run(os.getpid, workers=compute_workers(client)[:1])
            client.run(die_in_sums, number, workers=list(before))
            assert digest(train(data, solver, client=client).estimator) == digest(alone)
            assert not set(before.values()) & set(client.run(os.getpid, on_error="ignore").values())
            recovered(client, 3)
