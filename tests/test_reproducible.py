"""One model, whatever the threads, within each set of BLAS kernels."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import hashlib, dask.config, numpy as np
from dasksvm import LaSVC
rng = np.random.default_rng(0)
X = rng.normal(size=(3000, 40)).astype(np.float32)
y = (X[:, :3].sum(axis=1) + 0.7 * rng.normal(size=3000) > 0).astype(int)
for threads in (1, 2, 3):
    with dask.config.set({"dasksvm.threads": threads}):
        model = LaSVC(C=5, gamma=0.02, cache_size=4, random_state=1).fit(X, y)
    print(hashlib.sha256(model.dual_coef_.tobytes() + model.support_.tobytes() + model.intercept_.tobytes()).hexdigest())
"""


@pytest.mark.parametrize("coretype", [None, "Haswell"])
@pytest.mark.parametrize("blas_threads", ["1", "2"])
def test_model_does_not_depend_on_threads(coretype, blas_threads):
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    environment["OPENBLAS_NUM_THREADS"] = blas_threads
    if coretype is not None:
        environment["OPENBLAS_CORETYPE"] = coretype
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True, cwd=root
    )
    hashes = done.stdout.split()
    assert len(hashes) == 3
    assert len(set(hashes)) == 1
