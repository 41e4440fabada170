"""One model, whatever the threads, within each set of BLAS kernels."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from dasksvm.config import blas
from dasksvm.solver.memory import Workspace

CODE = """
import hashlib, dask.config, numpy as np
from threadpoolctl import threadpool_limits
from dasksvm import LaSVC
rng = np.random.default_rng(0)
X = rng.normal(size=(1200, 40)).astype(np.float32)
y = (X[:, :3].sum(axis=1) + 0.7 * rng.normal(size=1200) > 0).astype(int)
for blas_threads, threads in ((1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)):
    with threadpool_limits(blas_threads, "blas"), dask.config.set({"dasksvm.threads": threads}):
        model = LaSVC(C=5, gamma=0.02, cache_size=1, random_state=1).fit(X, y)
    print(hashlib.sha256(model.dual_coef_.tobytes() + model.support_.tobytes() + model.intercept_.tobytes()).hexdigest())
"""


@pytest.mark.parametrize("coretype", [None, "Haswell"])
def test_model_does_not_depend_on_threads(coretype):
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    if coretype is not None:
        environment["OPENBLAS_CORETYPE"] = coretype
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True, cwd=root
    )
    hashes = done.stdout.split()
    assert len(hashes) == 6
    assert len(set(hashes)) == 1


def threads_of_blas():
    return {entry["num_threads"] for entry in blas._controller().info() if entry["user_api"] == "blas"}


def test_blas_is_held_at_one_thread_from_any_thread_until_the_last_is_out():
    before = threads_of_blas()
    entered, leave = threading.Event(), threading.Event()
    seen = []

    def hold():
        with blas.one_thread():
            entered.set()
            leave.wait(10)
            seen.append(threads_of_blas())

    with threadpool_limits(2, "blas"):  # another thread than the one that will ask is in control
        outside = threads_of_blas()
        other = threading.Thread(target=hold)
        other.start()
        entered.wait(10)
        with blas.one_thread():
            leave.set()
            other.join()
            seen.append(threads_of_blas())
        assert threads_of_blas() == outside
    assert seen == [{1}, {1}]
    assert threads_of_blas() == before


def test_lent_memory_comes_back_when_nobody_refers_to_it():
    workspace = Workspace()
    kind = np.dtype(np.float32)
    first = workspace.loan((1000, 10), kind)
    first[:] = 7
    address = first.ctypes.data
    part = first[5:6]
    del first
    second = workspace.loan((1000, 10), kind)
    assert second.ctypes.data != address
    second[:] = 1
    assert np.all(part == 7)
    del part
    assert workspace.loan((500, 10), kind).ctypes.data == address
