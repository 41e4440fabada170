"""Models as estimators of scikit-learn, and back."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler
from sklearn.svm import SVC, NuSVC

from dasksvm import KernelModel, LaSVC, MulticlassSVC
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.kernels.registry import KERNELS
from tests.models import some_model


def test_100_random_models_go_round():
    kinds = set()
    for seed in range(100):
        model, X = some_model(seed)
        theirs = model.to_sklearn()
        values = model.decision_function(X)
        rows = sp.csr_matrix(X) if sp.issparse(model.support_vectors) and seed % 2 else X
        told = theirs.decision_function(rows).reshape(values.shape)
        assert np.abs(told - values).max() < 1e-9, seed
        assert np.array_equal(in_our_way(theirs).predict(rows), model.predict(X)), seed
        again = KernelModel.from_sklearn(theirs)
        assert np.abs(again.decision_function(X) - values).max() < 1e-9, seed
        assert np.array_equal(again.predict(X), model.predict(X))
        assert sp.issparse(again.support_vectors) == sp.issparse(model.support_vectors)
        assert again.classes.dtype == model.classes.dtype
        last = theirs[-1] if isinstance(theirs, Pipeline) else theirs
        kinds.add((type(theirs).__name__, type(last).__name__, sp.issparse(model.support_vectors)))
    assert len(kinds) == 8


def in_our_way(estimator):
    """Let votes that are equal be decided by sums of decision values."""
    last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    if isinstance(last, SVC | NuSVC) and len(last.classes_) > 2:
        last.set_params(decision_function_shape="ovr", break_ties=True)
    return estimator


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("shape", ["ovr", "ovo"])
def test_a_trained_model_is_a_fitted_estimator(rng, sparse, shape):
    X = rng.normal(size=(200, 3))
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    rows = sp.csr_matrix(X) if sparse else X
    model = LaSVC(random_state=0, decision_function_shape=shape).fit(rows, y)
    theirs = model.model_.to_sklearn()
    assert theirs.score(rows, y) == model.score(rows, y)
    assert theirs.n_features_in_ == 3
    assert theirs.classes_.tolist() == ["a", "b", "c"]
    assert clone(theirs).fit(rows, y).score(rows, y) > 0.9
    svc = theirs if shape == "ovo" else theirs.estimators_[0]
    assert svc.n_support_.sum() == svc.support_vectors_.shape[0] == len(svc.support_)
    assert shape == "ovr" or svc.support_vectors_.shape[0] == model.n_support_.sum()


def test_weights_of_a_linear_model(rng):
    X = rng.normal(size=(100, 3))
    y = X[:, 0] > 0
    model = LaSVC(kernel="linear", random_state=0).fit(X, y).model_
    svc = model.to_sklearn()
    assert np.allclose(X @ svc.coef_[0] + svc.intercept_, model.decision_function(X)[:, 0])


@pytest.mark.slow
def test_a_machine(rng):
    X = rng.normal(size=(200, 3))
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    model = MulticlassSVC(random_state=0).fit(X, y)
    theirs = model.model_.to_sklearn()
    assert isinstance(theirs, OneVsRestClassifier)
    assert np.allclose(theirs.decision_function(X), model.decision_function(X))
    assert np.array_equal(theirs.predict(X), model.predict(X))
    # Each support vector once, though all estimators have it.
    assert len(KernelModel.from_sklearn(theirs).support_vectors) == len(model.support_vectors_)


@pytest.mark.parametrize("sparse", [False, True])
def test_models_without_support_vectors(sparse):
    vectors = sp.csr_matrix((0, 2)) if sparse else np.zeros((0, 2))
    model = KernelModel(Kernel("poly"), vectors, np.zeros((3, 0)), np.array([1.0, 2.0, 3.0]), np.arange(3), None, True)
    assert model.to_sklearn().decision_function(np.ones((2, 2))).tolist() == [[1.0, 2.0, 3.0]] * 2


def test_a_high_degree_is_no_obstacle():
    model = KernelModel(Kernel("poly", 0.5, 0.0, 400), np.eye(2), np.ones((1, 2)), np.zeros(1), np.arange(2))
    assert model.to_sklearn().decision_function(2 * np.eye(2)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kernel", [formula.sklearn for formula in KERNELS.values() if formula.sklearn])
@pytest.mark.parametrize("kind", [SVC, NuSVC])
def test_models_that_scikit_learn_fitted(rng, sparse, classes, kernel, kind):
    X = rng.normal(size=(120, 3))
    y = np.digitize(X[:, 0] ** 2 + X[:, 1], [0.5, 1.5][: classes - 1])
    rows = sp.csr_matrix(X) if sparse else X
    svc = kind(kernel=kernel, decision_function_shape="ovo", **({"nu": 0.1} if kind is NuSVC else {})).fit(rows, y)
    vectors = svc.support_vectors_.copy()
    model = KernelModel.from_sklearn(svc)
    values = svc.decision_function(rows).reshape(120, -1)
    assert np.abs(model.decision_function(rows) - values).max() < 1e-9
    in_our_way(svc)
    assert np.array_equal(model.predict(rows), svc.predict(rows))
    assert (svc.support_vectors_ != vectors).sum() == 0


@pytest.mark.parametrize(
    "scaler", [StandardScaler(), StandardScaler(with_mean=False), MinMaxScaler((-1, 1)), "passthrough"]
)
def test_pipelines_that_scikit_learn_fitted(rng, scaler):
    X = rng.normal(size=(120, 3)) * [1.0, 3.0, 9.0] + 2
    y = np.where(X[:, 1] > 2, "yes", "no")
    fitted = make_pipeline(scaler, SVC()).fit(X, y)
    model = KernelModel.from_sklearn(fitted)
    assert np.abs(model.decision_function(X)[:, 0] - fitted.decision_function(X)).max() < 1e-9
    assert np.array_equal(model.predict(X), fitted.predict(X))


def test_one_against_the_rest_that_scikit_learn_fitted(rng):
    X = rng.normal(size=(120, 3))
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    fitted = make_pipeline(StandardScaler(), OneVsRestClassifier(SVC())).fit(X, y)
    model = KernelModel.from_sklearn(fitted)
    assert np.abs(model.decision_function(X) - fitted.decision_function(X)).max() < 1e-9
    assert len(model.support_vectors) < sum(len(each.support_) for each in fitted[1].estimators_)


def test_other_estimators_are_refused(rng):
    X = rng.normal(size=(60, 3))
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    lots = np.eye(3, dtype=int)[y]
    cases = [
        (LogisticRegression().fit(X, y), "Got LogisticRegression instead"),
        (SVC(kernel="precomputed").fit(X @ X.T, y), "kernel 'precomputed' .* is not supported"),
        (SVC(kernel=lambda A, B: A @ B.T).fit(X, y), "is not supported"),
        (SVC(kernel="poly", degree=0).fit(X, y), "of degree 0"),
        (make_pipeline(MaxAbsScaler(), SVC()).fit(X, y), "Got MaxAbsScaler instead"),
        (make_pipeline(MinMaxScaler(clip=True), SVC()).fit(X, y), "with clip=False"),
        (make_pipeline(StandardScaler(), MinMaxScaler(), SVC()).fit(X, y), "Got 3 steps"),
        (OneVsRestClassifier(SVC()).fit(X, lots), "more than two classes"),
        (OneVsRestClassifier(LogisticRegression()).fit(X, y), "Got LogisticRegression instead"),
        (OneVsRestClassifier(make_pipeline(StandardScaler(), SVC())).fit(X, y), "must be SVCs"),
    ]
    for estimator, message in cases:
        with pytest.raises(ValueError, match=message):
            KernelModel.from_sklearn(estimator)
    with pytest.raises(NotFittedError):
        KernelModel.from_sklearn(SVC())


def test_what_an_svc_cannot_be():
    model = KernelModel(Kernel("rbf"), np.eye(2), np.ones((1, 2)), np.array([np.inf]), np.arange(2))
    with pytest.raises(ValueError, match="one class only"):
        model.to_sklearn()
