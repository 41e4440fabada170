"""Where SMOSVC begins: other models' coefficients, made feasible and handed to the learner."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC, NuSVC

from dasksvm import SMOSVC, Dataset, GapSVC, LaSVC, MulticlassSVC, train
from dasksvm.estimators.start import feasible
from dasksvm.solver.decomposition.pair_learner import PairLearner
from tests.helpers import blobs

amounts = st.floats(-5.0, 5.0).map(lambda a: a if abs(a) > 1e-9 else 0.0)
bounds = st.floats(0.01, 4.0) | st.just(0.0)


@st.composite
def points(draw):
    shape = draw(st.tuples(st.integers(1, 3), st.integers(0, 12)))
    alpha = draw(arrays.arrays(float, shape, elements=amounts))
    sign = draw(arrays.arrays(float, shape, elements=st.sampled_from([-1.0, 0.0, 1.0])))
    bound = np.abs(sign) * draw(arrays.arrays(float, shape, elements=bounds))
    return alpha, sign, bound


@given(points())
def test_a_start_is_feasible_and_what_is_feasible_stays(point):
    alpha, sign, bound = point
    found = feasible(alpha, sign, bound)
    assert np.all(found * sign >= 0.0)
    assert np.all(np.abs(found) <= bound)
    assert np.all(np.abs(found.sum(axis=1)) <= 1e-12 * np.abs(found).sum(axis=1))
    np.testing.assert_array_equal(feasible(found, sign, bound), found)
    # One side of each problem is only cut off.
    cut = np.where(alpha * sign > 0.0, np.clip(alpha, -bound, bound), 0.0)
    for p in range(len(alpha)):
        kept = [np.array_equal(found[p, sign[p] == side], cut[p, sign[p] == side]) for side in (-1, 1)]
        assert any(kept)
        assert np.all(np.abs(found[p]) <= np.abs(cut[p]))


def test_the_larger_side_is_scaled_down_in_proportion():
    alpha = np.array([[3.0, 1.0, -1.0, -1.0, 0.5, -7.0]])
    sign, bound = np.array([[1.0, 1, -1, -1, -1, -1]]), np.array([[5.0, 5, 5, 0.5, 5, 0]])
    assert feasible(alpha, sign, bound).tolist() == [[1.125, 0.375, -1.0, -0.5, 0.0, 0.0]]


class HandedOver(Exception):
    """The learner has what it begins at."""


@pytest.fixture
def handed(monkeypatch):
    """Fit up to where the learner is fed; give what it was told before, by row."""

    def feed(learner, order, seeds):
        raise HandedOver(learner.start.examples, learner.start.alpha)

    monkeypatch.setattr(PairLearner, "feed", feed)

    def fit(estimator, *arguments, **options):
        with pytest.raises(HandedOver) as stopped:
            estimator.fit(*arguments, **options)
        assert not hasattr(estimator, "classes_")
        return stopped.value.args

    return fit


def solver(**options):
    return SMOSVC(**({"C": 2.0, "working_set_size": 2} | options))


def dense(rows, alpha, count):
    out = np.zeros((len(alpha), count))
    out[:, rows] = alpha
    return out


def test_without_a_start_nothing_is_handed_over(handed):
    X, y = blobs(60)
    rows, alpha = handed(solver(), X, y)
    assert len(rows) == alpha.shape[1] == 0


@pytest.mark.parametrize("C", [2.0, 0.3])
def test_rows_in_any_form_begin_at_the_same_coefficients(handed, tmp_path, C):
    X, y = blobs(150)
    start = LaSVC(C=2.0, epochs="converged", random_state=0).fit(X, y)
    given_ = dense(start.support_, start.dual_coef_, 150)
    rows, alpha = handed(solver(C=C), X, y, start=start)
    assert np.all(np.diff(rows) > 0)
    assert np.all(alpha.any(axis=0))
    assert np.all(np.abs(alpha) <= C)
    assert abs(alpha.sum()) < 1e-12 * np.abs(alpha).sum()
    whole = dense(rows, alpha, 150)
    if C == 2.0:
        np.testing.assert_allclose(whole, given_, rtol=1e-9)
    for form in ((sp.csr_matrix(X), y), (da.from_array(X, chunks=(40, 5)), y)):
        again, same = handed(solver(C=C), *form, start=start)
        assert np.array_equal(again, rows)
        assert np.array_equal(same, alpha)
    data = Dataset.create(tmp_path / "d.zarr", X, y, random_state=3)
    from_data = LaSVC(C=2.0, epochs="converged", random_state=0).fit(data)
    for known, expected in ((start, given_), (from_data, dense(from_data.support_, from_data.dual_coef_, 150))):
        ids, placed = handed(solver(C=C), data, start=known)
        there = dense(data.source_rows(ids), placed, 150)
        np.testing.assert_allclose(there, feasible(expected, 1.0 * np.sign(y)[None], np.full((1, 150), C)), rtol=1e-9)


def test_weights_make_the_boxes(handed):
    X, y = blobs(150)
    weights = np.where(np.arange(150) % 3 == 0, 0.0, 0.5)
    start = LaSVC(C=2.0, random_state=0).fit(X, y)
    rows, alpha = handed(solver(class_weight={1: 0.2, -1: 3.0}), X, y, weights, start=start)
    bound = 2.0 * weights * np.where(y == 1, 0.2, 3.0)
    assert np.all(rows % 3 > 0)
    assert np.all(np.abs(alpha[0]) <= bound[rows])
    expected = feasible(dense(start.support_, start.dual_coef_, 150), 1.0 * np.sign(y)[None], bound[None])
    np.testing.assert_allclose(dense(rows, alpha, 150), expected, rtol=1e-12)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_scikit_learn_s_svc_is_a_start(handed, form):
    X, y = blobs(150)
    labels = np.where(y > 0, "no", "yes")
    peer = SVC(C=2.0, gamma=0.2).fit(form(X), labels)
    rows, alpha = handed(solver(), form(X), labels, start=peer)
    expected = peer.dual_coef_.toarray() if sp.issparse(peer.dual_coef_) else peer.dual_coef_
    np.testing.assert_allclose(dense(rows, alpha, 150), dense(peer.support_, expected, 150), rtol=1e-9)


def digits_of(n=90):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    return rng.normal(size=(n, 4)) + np.eye(3, 4)[y], y


def test_scikit_learn_s_svc_of_several_classes_is_a_start_of_pairs(handed):
    X, y = digits_of()
    peer = SVC(C=2.0, gamma=0.2, tol=1e-8).fit(X, y)
    rows, alpha = handed(solver(decision_function_shape="ovo"), X, y, start=peer)
    whole = dense(rows, alpha, 90)
    for problem, (first, second) in enumerate([(0, 1), (0, 2), (1, 2)]):
        pair = np.flatnonzero((y == first) | (y == second))
        alone = SVC(C=2.0, gamma=0.2, tol=1e-8).fit(X[pair], y[pair] == first)
        expected = np.zeros(90)
        expected[pair[alone.support_]] = alone.dual_coef_[0]
        np.testing.assert_allclose(whole[problem], expected, atol=1e-5)
    with pytest.raises(ValueError, match="pairs of classes; expected 3 problems, each class against the rest"):
        solver().fit(X, y, start=peer)


@pytest.mark.parametrize("shape", ["ovr", "ovo"])
def test_every_problem_of_several_classes_has_its_own(handed, shape):
    X, y = digits_of()
    start = LaSVC(C=2.0, decision_function_shape=shape, epochs="converged", random_state=0).fit(X, y)
    rows, alpha = handed(solver(decision_function_shape=shape), X, y, start=start)
    assert alpha.shape == (3, len(rows))
    np.testing.assert_allclose(dense(rows, alpha, 90), dense(start.support_, start.dual_coef_, 90), rtol=1e-9)
    other = {"ovr": "ovo", "ovo": "ovr"}[shape]
    with pytest.raises(ValueError, match=r"3 problems, .*; expected 3 problems"):
        solver(decision_function_shape=other).fit(X, y, start=start)


@pytest.mark.slow
def test_coefficients_without_a_bias_are_balanced(handed):
    X, y = blobs(150)
    start = GapSVC(C=2.0, random_state=0).fit(X, y)
    assert abs(start.dual_coef_.sum()) > 1e-3
    _, alpha = handed(solver(), X, y, start=start)
    assert abs(alpha.sum()) < 1e-12 * np.abs(alpha).sum()


def test_what_cannot_be_a_start_is_named():
    X, y = blobs(60)
    model = LaSVC(random_state=0).fit(X, y)
    wrong = [
        (NuSVC().fit(X, y), "must be a fitted estimator"),
        (LogisticRegression(), "must be a fitted estimator"),
        (model.dual_coef_, "must be a fitted estimator"),
        (LaSVC(random_state=0).fit(X, y > 0), "has the classes"),
        (SVC().fit(*digits_of()), "has the classes"),
        (LaSVC(random_state=0).fit(np.tile(X, (3, 1)), np.tile(y, 3)), "not rows of X"),
    ]
    for start, match in wrong:
        with pytest.raises(ValueError, match=match):
            solver().fit(X, y, start=start)
    for start in (LaSVC(), SVC(), SMOSVC()):
        with pytest.raises(NotFittedError):
            solver().fit(X, y, start=start)


def test_rows_that_a_data_set_does_not_have_are_named(tmp_path):
    X, y = blobs(80)
    model = LaSVC(C=0.1, random_state=0).fit(X, y)
    data = Dataset.create(tmp_path / "d.zarr", X[:50], y[:50], random_state=0)
    with pytest.raises(ValueError, match="not rows of X"):
        solver().fit(data, start=model)


def test_a_model_may_be_its_own_start(handed):
    X, y = blobs(100)
    other, model = LaSVC(C=2.0, random_state=0).fit(X, y), solver()
    for name in ("support_", "dual_coef_", "classes_", "model_"):
        setattr(model, name, getattr(other, name))
    rows, _ = handed(model, X, y, start=model)
    assert len(rows) > 10
    with pytest.raises(HandedOver):
        train((X, y), model)


def test_a_start_that_is_refused_leaves_nothing_fitted():
    X, y = blobs(60)
    model = solver()
    model.classes_ = np.array([-1, 1])
    with pytest.raises(ValueError, match="must be a fitted"):
        model.fit(X, y, start="LaSVC")
    assert not hasattr(model, "classes_")


@pytest.mark.slow
def test_a_machine_may_be_a_start(handed):
    X, y = digits_of()
    start = MulticlassSVC(C=2.0, random_state=0).fit(X, y)
    rows, alpha = handed(solver(), X, y, start=start)
    assert len(rows) > 10
    assert np.all(np.abs(alpha.sum(axis=1)) < 1e-12 * np.abs(alpha).sum(axis=1))
