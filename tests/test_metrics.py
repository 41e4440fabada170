import numpy as np
import pytest
from sklearn.metrics import precision_recall_curve

from dasksvm.model.metrics import break_even, geometric_mean


def test_break_even_is_where_the_curves_of_precision_and_recall_meet():
    rng = np.random.default_rng(0)
    for _ in range(20):
        truth = rng.random(200) < 0.3
        values = truth + rng.normal(size=200)
        precision, recall, _ = precision_recall_curve(truth, values)
        assert break_even(truth, values) == pytest.approx(precision[np.argmin(np.abs(precision - recall))])


def test_break_even_shares_what_is_equal_and_needs_a_positive():
    assert break_even([True, False, False, True], [1.0, 1.0, 1.0, 1.0]) == 0.5
    assert break_even([True, True, False, False], [2.0, 1.0, 1.0, 0.0]) == 0.75
    assert np.isnan(break_even([False, False], [1.0, 2.0]))


def test_geometric_mean_leaves_out_classes_without_rows():
    assert geometric_mean(np.array([[8, 2, 0], [0, 0, 0], [5, 0, 5]])) == pytest.approx(np.sqrt(0.8 * 0.5))
    assert geometric_mean(np.array([[8, 2], [10, 0]])) == 0.0
