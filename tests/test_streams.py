"""Weights in `partial_fit`: at the optimum, a weight of 0 drops a row and one of 2 is two of it."""

import numpy as np
import pytest

from dasksvm import GapSVC, LaSVC, MulticlassSVC, TrackingSVC
from dasksvm.estimators._fitting import CONVERGED
from tests.helpers import blobs


class Converging(LaSVC):
    """Its `partial_fit` goes on to the optimum of what it is given, where LaSVC makes one pass."""

    def _prepare(self, problem, coding, epochs):
        return super()._prepare(problem, coding, CONVERGED)


# C is small, so that most rows are support vectors and what is not kept of a block is hardly missed later.
SHARED = {"C": 0.3, "gamma": 0.3, "random_state": 0}
# Each with the blocks that it gets, and how near two runs come.
ESTIMATORS = {
    "LaSVC": (Converging(**SHARED, tol=1e-4), 1, 1e-3),
    "LaSVC in blocks": (Converging(**SHARED, tol=1e-4), 2, 0.03),
    "GapSVC": (GapSVC(**SHARED, variant="full", threshold=1e-4, tol=1e-6), 2, 1e-3),
    "TrackingSVC": (TrackingSVC(**SHARED, gradients="all", steps=100, average=False), 2, 5e-3),
    "MulticlassSVC": (MulticlassSVC(**SHARED, solver="batch"), 2, 1e-3),
}
every_estimator = pytest.mark.parametrize("name", list(ESTIMATORS))


def streamed(estimator, blocks):
    """Train on some blocks of rows, labels and weights."""
    model = type(estimator)(**estimator.get_params())
    for X, y, weight in blocks:
        model.partial_fit(X, y, classes=[-1, 1], sample_weight=weight)
    return model


@every_estimator
def test_weights_are_repetitions(name):
    estimator, blocks, near = ESTIMATORS[name]
    X, y = blobs(240, d=3, shift=0.1)
    weight = np.random.default_rng(1).integers(0, 3, 240)
    parts = np.array_split(np.arange(240), blocks)
    weighted = streamed(estimator, [(X[part], y[part], weight[part]) for part in parts])
    repeated = [np.repeat(part, weight[part]) for part in parts]
    expected = streamed(estimator, [(X[rows], y[rows], None) for rows in repeated])
    plain = streamed(estimator, [(X[part], y[part], None) for part in parts])
    assert weighted.dual_objective_ == pytest.approx(expected.dual_objective_, rel=near)
    assert plain.dual_objective_ != pytest.approx(expected.dual_objective_, rel=2 * near)
    # The number of a support vector counts the rows of all blocks.
    assert weight[weighted.support_].min() > 0
    if near < 0.01:
        values, others, without = (model.decision_function(X) for model in (weighted, expected, plain))
        assert np.abs(values - others).max() < 0.2 * np.abs(values - without).max()


@every_estimator
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones(59), "expected"),
        (np.ones((60, 1)), "1D array or scalar"),
        (-np.ones(60), "not negative"),
        (np.full(60, np.nan), "finite"),
        (np.zeros(60), "zero for every example"),
    ],
    ids=["short", "two-dimensional", "negative", "nan", "zero"],
)
def test_weights_that_do_not_fit_are_refused_and_change_nothing(name, weight, message):
    estimator = ESTIMATORS[name][0]
    X, y = blobs(180, d=3)
    first, second, third = slice(0, 60), slice(60, 120), slice(120, 180)
    with pytest.raises(ValueError, match=message):
        streamed(estimator, [(X[first], y[first], weight)])
    model = streamed(estimator, [(X[first], y[first], None)])
    with pytest.raises(ValueError, match=message):
        model.partial_fit(X[second], y[second], sample_weight=weight)
    model.partial_fit(X[third], y[third])
    expected = streamed(estimator, [(X[part], y[part], None) for part in (first, third)])
    np.testing.assert_array_equal(model.decision_function(X), expected.decision_function(X))
