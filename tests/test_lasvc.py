"""LaSVC as its users see it."""

import pickle

import dask.array as da
import dask.config
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from dasksvm import LaSVC
from tests.helpers import DEFINITE_KERNELS, blobs

EXPECTED = {
    f"check_sample_weight_equivalence_on_{kind}_data": "one pass is not the optimum; scikit-learn excuses its SVC and SGD"
    for kind in ("dense", "sparse")
}


@parametrize_with_checks(
    [LaSVC(random_state=0), LaSVC(engine="blocks", random_state=0)], expected_failed_checks=lambda estimator: EXPECTED
)
def test_scikit_learn_compatible(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    X, y = blobs(1200, seed=2, shift=0.5)
    return X.astype(np.float32), np.where(y > 0, "yes", "no")


def test_attributes_are_those_of_svc(data):
    X, y = data
    model = LaSVC(C=2.0, gamma=0.1, epochs="converged", random_state=0).fit(X, y)
    peer = SVC(C=2.0, gamma=0.1, tol=1e-4).fit(X, y)
    np.testing.assert_array_equal(model.classes_, peer.classes_)
    np.testing.assert_array_equal(model.support_vectors_, X[model.support_])
    assert model.n_support_.sum() == len(model.support_) == model.dual_coef_.shape[1]
    assert np.all(np.abs(model.n_support_ - peer.n_support_) <= 0.02 * peer.n_support_)
    assert np.all(model.dual_coef_[0, : model.n_support_[0]] < 0)
    assert np.all(model.dual_coef_[0, model.n_support_[0] :] > 0)
    np.testing.assert_allclose(model.intercept_, peer.intercept_, atol=2e-3)
    np.testing.assert_allclose(model.decision_function(X), peer.decision_function(X), atol=5e-3)
    np.testing.assert_array_equal(model.predict(X), np.where(model.decision_function(X) > 0, "yes", "no"))
    assert model.history_[-1]["phase"] == "done"
    assert model.history_[-1]["delta"] <= 1e-3
    assert model.kernel_evaluations_ > 0
    assert model.n_iter_ > 0


def test_duality_gap_certifies(data):
    X, y = data
    model = LaSVC(C=2.0, gamma=0.1, epochs="converged", random_state=0).fit(X, y)
    primal, dual, gap = model.duality_gap(X, y)
    assert dual == pytest.approx(model.dual_objective_)
    assert 0 <= gap <= 2e-3 * primal
    K = np.exp(-0.1 * ((X[:, None].astype(float) - X[None]) ** 2).sum(axis=2))
    alpha = np.zeros(len(y))
    alpha[model.support_] = model.dual_coef_[0]
    sign = np.where(y == "yes", 1, -1)
    losses = np.maximum(0, 1 - sign * (K @ alpha + model.intercept_[0]))
    assert primal == pytest.approx(0.5 * alpha @ K @ alpha + 2.0 * losses.sum())
    assert dual == pytest.approx(alpha @ sign - 0.5 * alpha @ K @ alpha)
    assert model.duality_gap(da.from_array(X, chunks=(500, 5)), y) == pytest.approx((primal, dual, gap))


def test_one_epoch_predicts_like_svc(data):
    X, y = data
    model = LaSVC(C=2.0, gamma=0.1, random_state=0).fit(X, y)
    peer = SVC(C=2.0, gamma=0.1).fit(X, y)
    assert np.mean(model.predict(X) != peer.predict(X)) < 0.03


@pytest.mark.parametrize("kernel", DEFINITE_KERNELS)
@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array])
def test_csr_equals_dense(kernel, kind):
    rng = np.random.default_rng(0)
    X = sp.random(500, 300, 0.02, "csr", rng=rng, dtype=np.float64)
    y = np.where(np.asarray(X[:, :150].sum(axis=1)).ravel() > np.asarray(X[:, 150:].sum(axis=1)).ravel(), 1, 0)
    options = {"kernel": kernel, "dtype": "float64", "tol": 1e-6, "epochs": "converged", "random_state": 0}
    sparse = LaSVC(**options).fit(kind(X), y)
    dense = LaSVC(**options).fit(X.toarray(), y)
    assert sp.issparse(sparse.support_vectors_)
    assert sparse.dual_objective_ == pytest.approx(dense.dual_objective_, rel=1e-5)
    np.testing.assert_allclose(sparse.decision_function(X), dense.decision_function(X.toarray()), atol=1e-4)
    np.testing.assert_allclose(sparse.decision_function(X), sparse.decision_function(X.toarray()), atol=1e-10)


def test_dask_arrays_are_taken_chunk_by_chunk_and_predicted_lazily(data):
    X, y = data
    computed = []

    def note(block):
        if block.shape[0]:
            computed.append(block.shape)
        return block

    lazy = da.from_array(X, chunks=(250, 2)).rechunk((250, 5)).map_blocks(note, dtype=X.dtype, meta=X[:0])
    model = LaSVC(C=2.0, gamma=0.1, random_state=0).fit(lazy, da.from_array(y, chunks=300))
    assert max(shape[0] for shape in computed) == 250
    assert np.mean(model.predict(X) == y) > 0.85
    np.testing.assert_array_equal(model.support_vectors_, X[model.support_])
    decided = model.decision_function(da.from_array(X, chunks=(100, 5)))
    assert isinstance(decided, da.Array)
    np.testing.assert_allclose(decided.compute(), model.decision_function(X), atol=1e-5)
    predicted = model.predict(da.from_array(X, chunks=(100, 3)))
    np.testing.assert_array_equal(predicted.compute(), model.predict(X))
    keys = [key for key in dict(predicted.__dask_graph__()) if "KernelModel" in str(key)]
    assert len(keys) == 1


def test_dask_chunks_may_be_empty_or_of_unknown_size(data):
    X, y = data
    lazy = da.concatenate([da.from_array(X[:400]), da.zeros((0, 5), dtype=X.dtype), da.from_array(X[400:])])
    model = LaSVC(C=2.0, gamma=0.1, random_state=0).fit(lazy, y)
    assert model.predict(lazy).compute().shape == (1200,)
    unknown = da.from_array(X, chunks=(300, 5))
    unknown = unknown[da.from_array(np.ones(1200, bool), chunks=300)]
    assert LaSVC(C=2.0, gamma=0.1, random_state=0).fit(unknown, y).score(X, y) > 0.85


def test_dask_chunk_with_nan_says_so(data):
    X, y = data
    bad = X.copy()
    bad[700, 2] = np.nan
    model = LaSVC()
    with pytest.raises(ValueError, match="NaN"):
        model.fit(da.from_array(bad, chunks=(250, 5)), y)
    assert not hasattr(model, "model_")


def test_partial_fit_goes_on(data):
    X, y = data
    model = LaSVC(C=2.0, gamma=0.1, random_state=0)
    errors = []
    for start in range(0, 1200, 200):
        block = slice(start, start + 200)
        model.partial_fit(X[block], y[block], classes=["no", "yes"])
        errors.append(1 - model.score(X, y))
    assert errors[-1] < errors[0]
    whole = LaSVC(C=2.0, gamma=0.1, random_state=0).fit(X, y)
    assert model.dual_objective_ == pytest.approx(whole.dual_objective_, rel=0.03)
    np.testing.assert_allclose(model.support_vectors_, X[model.support_], atol=1e-5)


def test_partial_fit_survives_pickling(data):
    X, y = data
    model = LaSVC(C=2.0, gamma=0.1, random_state=0).partial_fit(X[:600], y[:600], classes=["no", "yes"])
    again = pickle.loads(pickle.dumps(model))
    model.partial_fit(X[600:], y[600:])
    again.partial_fit(X[600:], y[600:])
    np.testing.assert_array_equal(model.dual_coef_, again.dual_coef_)


def test_partial_fit_goes_on_from_fit(data):
    X, y = data
    model = LaSVC(C=2.0, gamma=0.1, random_state=0).fit(X[:600], y[:600])
    before = model.dual_objective_
    model.partial_fit(X[600:], y[600:])
    assert model.support_.max() >= 600
    assert model.support_.min() < 600
    assert model.dual_objective_ > before


def test_partial_fit_refuses_what_it_cannot_do(data):
    X, y = data
    with pytest.raises(ValueError, match="first call"):
        LaSVC().partial_fit(X, y)
    with pytest.raises(ValueError, match="balanced"):
        LaSVC(class_weight="balanced").partial_fit(X, y, classes=["no", "yes"])
    model = LaSVC().partial_fit(X, y, classes=["no", "yes"])
    with pytest.raises(ValueError, match="not in classes"):
        model.partial_fit(X, np.full(1200, "maybe"))
    with pytest.raises(ValueError, match="not the same"):
        model.partial_fit(X, y, classes=["a", "b"])


@pytest.mark.parametrize("weight", [-1.0, np.inf, np.nan])
def test_a_weight_of_a_class_is_finite_and_not_negative(data, weight):
    with pytest.raises(ValueError, match="class_weight must be finite"):
        LaSVC(class_weight={"yes": weight}).fit(*data)


def test_weights_multiply_c(data):
    X, y = data
    X, y = X[:300], y[:300]
    options = {"gamma": 0.1, "epochs": "converged", "tol": 1e-5, "dtype": "float64", "random_state": 0}
    weights = np.random.default_rng(0).integers(0, 4, 300)
    weighted = LaSVC(C=1.0, **options).fit(X, y, sample_weight=weights)
    repeated = LaSVC(C=1.0, **options).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert weighted.dual_objective_ == pytest.approx(repeated.dual_objective_, rel=1e-5)
    classes = LaSVC(C=1.0, class_weight={"no": 2.0, "yes": 0.5}, **options).fit(X, y)
    peer = SVC(C=1.0, gamma=0.1, class_weight={"no": 2.0, "yes": 0.5}, tol=1e-6).fit(X, y)
    np.testing.assert_allclose(classes.decision_function(X), peer.decision_function(X), atol=1e-3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("C", -1.0), ("C", "one"), ("C", np.nan), ("kernel", "cosine"), ("kernel", None), ("gamma", 0.0),
        ("gamma", "big"), ("degree", 0), ("degree", 2.5), ("coef0", "x"), ("tol", 0), ("epochs", 0), ("epochs", "all"),
        ("reprocess", -1), ("delta_max", -2.0), ("second_order", 1), ("finish", "yes"), ("max_examples", 0),
        ("max_support", 1), ("max_time", -1), ("cache_size", 0), ("dtype", "float16"), ("verbose", -1),
    ],
)  # fmt: skip
def test_a_bad_parameter_is_named(data, name, value):
    with pytest.raises(ValueError, match=f"'{name}' parameter of LaSVC must be"):
        LaSVC(**{name: value}).fit(*data)


def test_bad_data_is_refused(data):
    X, y = data
    bad = X.copy()
    bad[3, 1] = np.inf
    for wrong, labels, words in (
        (bad, y, "infinity"),
        (X[:0], y[:0], "0 sample"),
        (X, y[:-1], "inconsistent numbers"),
        (X, np.full(1200, "yes"), "number of classes has to be greater than one"),
        (X[:, 0], y, "Expected 2D array"),
        (np.full((4, 2), "a"), [0, 1, 0, 1], "could not convert|dtype"),
    ):
        with pytest.raises(ValueError, match=words):
            LaSVC().fit(wrong, labels)
    with pytest.raises(ValueError, match=r"y is None|requires y"):
        LaSVC().fit(X)
    with pytest.raises(ValueError, match="features"):
        LaSVC().fit(X, y).predict(X[:, :3])
    for weights, words in ((-np.ones(1200), "negative"), (np.zeros(1200), "zero"), (np.ones(7), "expected")):
        with pytest.raises(ValueError, match=words):
            LaSVC().fit(X, y, sample_weight=weights)


def test_an_interrupted_fit_leaves_nothing(data, monkeypatch):
    X, y = data
    model = LaSVC(random_state=0).fit(X, y)
    from dasksvm.solver.engine.learner import Learner

    taken = []

    def interrupt(self, result):
        taken.append(result)
        raise KeyboardInterrupt

    monkeypatch.setattr(Learner, "take", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert taken
    assert not [name for name in vars(model) if name.endswith("_")]


def test_budgets(data):
    X, y = data
    assert LaSVC(max_examples=100, random_state=0).fit(X, y).history_[-1]["seen"] == 100
    assert LaSVC(max_support=50, random_state=0).fit(X, y).n_support_.sum() <= 50
    quick = LaSVC(max_time=1e-6, random_state=0).fit(X, y)
    assert quick.history_[-1]["seen"] < 1200


def test_a_budget_of_one_call_does_not_bind_the_next(data):
    X, y = data
    model = LaSVC(max_examples=100, random_state=0)
    for calls in (1, 2, 3):
        model.partial_fit(X, y, classes=["no", "yes"])
        assert model.history_[-1]["seen"] == 100 * calls
    timed = LaSVC(max_time=1e-6, random_state=0).fit(X, y)
    seen = timed.history_[-1]["seen"]
    timed.set_params(max_time=None).partial_fit(X, y)
    assert timed.history_[-1]["seen"] == seen + 1200


def test_one_class_without_weight_gives_a_constant(data):
    X, y = data
    weights = (y == "no").astype(float)
    model = LaSVC(random_state=0).fit(da.from_array(X, chunks=(400, 5)), y, sample_weight=weights)
    assert model.n_support_.sum() == 0
    assert model.support_vectors_.shape == (0, 5)
    assert len(set(model.predict(X))) == 1


def test_duality_gap_refuses_strange_labels(data):
    X, y = data
    with pytest.raises(ValueError, match="not in classes"):
        LaSVC(random_state=0).fit(X, y).duality_gap(X, np.where(y == "no", "no", "perhaps"))


def test_not_converged_is_said(data, monkeypatch):
    monkeypatch.setattr("dasksvm.solver.engine.learner.MOST_EPOCHS", 0)
    with pytest.warns(ConvergenceWarning, match="did not reach"):
        LaSVC(epochs="converged", random_state=0).fit(*data)


def test_verbose_shows_progress(data, capsys):
    X, y = data
    LaSVC(verbose=1, random_state=0).fit(X, y)
    shown = capsys.readouterr().err
    assert "kept" in shown
    assert shown.rstrip().splitlines()[-1].lstrip("\r\x1b[K").startswith("done")
    assert "1,200 seen" in shown
    assert "rows/s" in shown


def test_same_seed_same_model_whatever_the_threads(data):
    X, y = data
    models = []
    for threads in (1, 2, 1):
        with dask.config.set({"dasksvm.threads": threads}):
            models.append(LaSVC(random_state=3).fit(X, y))
    for model in models[1:]:
        np.testing.assert_array_equal(model.dual_coef_, models[0].dual_coef_)
        np.testing.assert_array_equal(model.intercept_, models[0].intercept_)


def test_clone_pickle_and_search(data):
    X, y = data
    model = LaSVC(C=3.0, random_state=0).fit(X, y)
    assert clone(model).get_params() == model.get_params()
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert len(pickle.dumps(model)) < 2_000_000
    search = GridSearchCV(LaSVC(random_state=0), {"C": [0.1, 1.0]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.8


def test_integers_stay_small_until_a_tile_is_made():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 255, (400, 20)).astype(np.uint8)
    y = (X[:, :10].sum(axis=1, dtype=int) > X[:, 10:].sum(axis=1, dtype=int)).astype(int)
    model = LaSVC(C=10, random_state=0).fit(X, y)
    assert model.support_vectors_.dtype == np.uint8
    assert model.score(X, y) > 0.9


def test_float64_tiles_agree_with_float32(data):
    X, y = data
    models = [LaSVC(dtype=d, epochs="converged", random_state=0).fit(X, y) for d in ("float32", "float64")]
    assert models[0].dual_objective_ == pytest.approx(models[1].dual_objective_, rel=1e-5)


@pytest.mark.parametrize("density", [0.02, 0.5])
def test_sparse_partial_fit_keeps_the_rows_of_every_block(density, rng):
    X = sp.random(300, 40, density, format="csr", random_state=0)
    y = np.asarray(X.sum(axis=1)).ravel() > np.median(np.asarray(X.sum(axis=1)))
    model = LaSVC(C=10, gamma=0.5, random_state=0)
    for start in range(0, 300, 100):
        model.partial_fit(X[start : start + 100], y[start : start + 100], classes=[False, True])
    assert model.support_.min() < 100
    assert model.support_.max() >= 200
    assert sp.issparse(model.support_vectors_)
    assert np.allclose(model.support_vectors_.toarray(), X[model.support_].toarray(), atol=1e-6)


@pytest.mark.parametrize("engine", ["single", "blocks"])
def test_batches_grow_where_few_examples_become_members(rng, engine):
    X = rng.normal(size=(20_000, 5)) + 4 * np.where(np.arange(20_000) % 2, 1, -1)[:, None]
    model = LaSVC(gamma=0.01, engine=engine, random_state=0).fit(X, np.arange(20_000) % 2)
    assert len(model.support_) < 100
    assert len(model.history_) < 20_000 / 64 / 1.5
    assert model.score(X, np.arange(20_000) % 2) > 0.999
