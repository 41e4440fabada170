"""Several problems over one feature store: each behaves as if alone."""

import numpy as np
import pytest

from dasksvm.solver.engine.selection import RandomOrder
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.lasvm.learner import TwoClassLearner
from dasksvm.solver.messages import Targets
from tests.helpers import Rows, blobs, lasvm_settings, learner_for, run


class Several(Rows):
    """Each problem has its own labels."""

    def __init__(self, X, signs, bound):
        super().__init__(X, signs[0], bound)
        self.signs = np.asarray(signs, np.float64)

    def targets(self, rows):
        codes = (self.signs[0, rows] > 0).astype(np.int64)
        return Targets(codes, self.signs[:, rows], np.tile(self.bound[rows], (len(self.signs), 1)))


def test_each_problem_reaches_its_own_optimum():
    X, first = blobs(250, seed=1)
    second = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
    bound = np.full(250, 2.0)
    kernel = Kernel("rbf", 0.3)
    several = Several(X, [first, second], bound)
    settings = lasvm_settings(kernel, tau=1e-4, problems=2, epochs=0)
    together = TwoClassLearner(settings)
    together.feed(RandomOrder((250,), 0), np.arange(20))
    run(together, several, threads=2, watch=lambda progress, seconds: together.expansion.check(1e-8) is not None)
    duals = together.progress().dual
    for at, y in enumerate((first, second)):
        rows = Rows(X, y, bound)
        alone = run(learner_for(rows, kernel, epochs=0, tau=1e-4), rows)
        assert duals[at] == pytest.approx(alone.progress().dual[0], rel=1e-5)
    alpha, _, examples, _ = together.solution()
    assert np.all(alpha * several.signs[:, examples] >= 0)
