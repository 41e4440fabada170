"""GapSVC: estimators of paper 2, here and on clusters."""

import pickle

import dask.config
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import parametrize_with_checks

from dasksvm import ActiveLearner, Dataset, GapSVC, HeldOut, LaSVC, TrackingSVC, load, train
from tests.clusters import cluster, digest, history, noisy
from tests.helpers import blobs

pytestmark = pytest.mark.slow
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": "one pass is not the optimum; scikit-learn excuses its SVC and SGD",
    "check_sample_weight_equivalence_on_sparse_data": "one pass is not the optimum; scikit-learn excuses its SVC and SGD",
}
every_variant = pytest.mark.parametrize("variant", ["g", "nc", "i", "full"])


@parametrize_with_checks([GapSVC(random_state=0)], expected_failed_checks=lambda estimator: EXPECTED)
def test_scikit_learn_compatible(estimator, check):
    check(estimator)


def solver(variant="nc", **options):
    return GapSVC(**({"variant": variant, "C": 5.0, "gamma": 0.2, "warmup": 30, "random_state": 0} | options))


def wrong(share=0.15, n=1200):
    """Labels of which a share is wrong, and clean rows to test on."""
    X, y = blobs(n + 400, d=4, shift=1.2)
    flipped = np.where(np.random.default_rng(1).random(n) < share, -y[:n], y[:n])
    return X[:n], flipped, X[n:], y[n:]


def test_the_ramp_leaves_wrong_labels_out():
    X, y, X_test, y_test = wrong()
    hinge = solver("g").fit(X, y)
    exact = LaSVC(C=5.0, gamma=0.2, random_state=0).fit(X, y)
    for variant in ("nc", "i"):
        # One order of the examples is worth a point of accuracy more or less.
        models = [solver(variant, random_state=seed).fit(X, y) for seed in range(5)]
        for model in models:
            assert model.n_support_.sum() < 0.7 * hinge.n_support_.sum()
            assert model.kernel_evaluations_ < hinge.kernel_evaluations_
        assert np.mean([model.score(X_test, y_test) for model in models]) > exact.score(X_test, y_test) - 0.01
    assert np.all(hinge.intercept_ == 0.0)
    assert len(hinge.support_) == hinge.n_support_.sum()


@every_variant
def test_history_and_certificate_tell_of_the_gap(variant):
    X, y, _, _ = wrong()
    model = solver(variant).fit(X, y)
    last = model.history_[-1]
    assert last["dual"] == pytest.approx(model.dual_objective_, rel=1e-4)
    assert {"gap", "support_vectors", "seen"} <= set(last)
    assert last["seen"] == len(X)
    if variant == "nc":
        with pytest.raises(ValueError, match="not convex"):
            model.duality_gap(X, y)
        return
    primal, dual, gap = model.duality_gap(X, y)
    assert dual == pytest.approx(model.dual_objective_)
    if variant == "full":
        # All examples are members: their gap is that of the whole set.
        assert gap == pytest.approx(last["gap"], rel=1e-3)
    else:
        assert 0 < gap < primal


def test_the_dual_counts_coefficients_against_their_labels():
    X, y, _, _ = wrong(0.25)
    model = solver(ramp=0.0, warmup=20, C=10.0).fit(X, y)
    assert np.any(model.dual_coef_[0] * y[model.support_] < 0)
    assert model.history_[-1]["dual"] == pytest.approx(model.dual_objective_, rel=1e-4)


def test_gradients_stay_exact_where_steps_are_tiny_beside_the_box():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 256, (300, 400)).astype(float), np.where(rng.random(300) < 0.5, 1, -1)
    for variant in ("g", "nc"):
        model = solver(variant, kernel="linear", C=1000.0, dtype="float64").fit(X, y)
        model._running[0].expansion.check(1e-7)


def test_queries_need_a_model_on_the_way_and_no_budget():
    X, y, _, _ = wrong()
    for name, estimator in (("retrain", solver()), ("retrain", TrackingSVC())):
        with pytest.raises(ValueError, match=name):
            ActiveLearner(estimator, X, retrain=True)
    with pytest.raises(ValueError, match="solver='online'"):
        ActiveLearner(TrackingSVC(solver="batch"), X)
    for estimator in (solver("g", max_support=8), TrackingSVC(max_support=8, random_state=3)):
        learner = ActiveLearner(estimator, X)
        while len(learner.ids) < 60:
            ids = learner.query(10)
            learner.teach(ids, y[ids])
        assert learner.estimator_.n_support_.sum() > 8
        assert learner._learner.settings.seed == learner.estimator._seed()


def test_a_small_threshold_makes_the_exact_svm_of_all_examples():
    X, y, _, _ = wrong(n=300)
    model = solver("full", threshold=1e-6, tol=1e-9, dtype="float64").fit(X, y)
    primal, _, gap = model.duality_gap(X, y)
    assert 0 <= gap + 1e-9 < 1e-6 + 1e-9 * primal


def test_classes_against_the_rest_equal_separate_fits():
    X, y = load_digits(n_class=4, return_X_y=True)
    X, y = X[:500] / 16, y[:500]
    options = {"dtype": "float64", "gamma": 0.05}
    with dask.config.set({"dasksvm.filter": False}):
        whole = solver(**options).fit(X, y)
        for label in range(4):
            alone = solver(**options).fit(X, y == label)
            expected = np.zeros(500)
            expected[alone.support_] = alone.dual_coef_[0]
            found = np.zeros(500)
            found[whole.support_] = whole.dual_coef_[label]
            np.testing.assert_allclose(found, expected, atol=1e-7)
    assert whole.kernel_evaluations_ < 4 * alone.kernel_evaluations_
    pairs = solver(decision_function_shape="ovo", **options).fit(X, y)
    assert pairs.dual_coef_.shape[0] == 6
    assert min(whole.score(X, y), pairs.score(X, y)) > 0.97


@every_variant
def test_threads_and_sparse_rows_change_nothing_that_matters(variant):
    X, y, X_test, _ = wrong(n=700)
    with dask.config.set({"dasksvm.threads": 1}):
        alone = digest(solver(variant).fit(X, y))
    with dask.config.set({"dasksvm.threads": 3}):
        assert digest(solver(variant).fit(X, y)) == alone
    few = np.where(np.abs(X) > 0.7, X, 0.0)
    dense, sparse = (solver(variant, dtype="float64").fit(form, y) for form in (few, sp.csr_matrix(few)))
    np.testing.assert_allclose(dense.decision_function(X_test), sparse.decision_function(X_test), atol=1e-6)


def test_weights_streams_held_out_sets_and_files(tmp_path):
    X, y, X_test, y_test = wrong()
    light = solver("g", class_weight={-1: 1.0, 1: 0.0}).fit(X, y)
    assert light.n_support_[1] == 0
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
    weighted = solver("g").fit(X, y, sample_weight=weights)
    bounds = 5.0 * weights[weighted.support_]
    assert np.all(np.abs(weighted.dual_coef_[0]) <= bounds * (1 + 1e-12))
    watched = HeldOut(X_test, y_test, every=300)
    run = train((X, y), solver(), callbacks=[watched])
    assert digest(run.estimator) == digest(solver().fit(X, y))
    assert watched.entries[-1]["error"] == pytest.approx(1 - run.estimator.score(X_test, y_test))
    run.model.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").predict(X_test), run.estimator.predict(X_test))
    again = pickle.loads(pickle.dumps(run.estimator))
    stream = solver()
    for start in range(0, len(X), 400):
        part = slice(start, start + 400)
        stream.partial_fit(X[part], y[part], classes=[-1, 1])
    assert stream.score(X_test, y_test) > run.estimator.score(X_test, y_test) - 0.03
    assert again.partial_fit(X, y).score(X_test, y_test) > 0.8


def test_budgets_and_parameters():
    X, y, _, _ = wrong()
    # One iteration may bring several.
    assert 60 <= solver("g", max_support=60).fit(X, y).n_support_.sum() < 70
    assert solver(max_examples=200).fit(X, y).history_[-1]["seen"] == 200
    for options in ({"ramp": 1.0}, {"variant": "h"}, {"warmup": -1}, {"threshold": 0.0}, {"epochs": "converged"}):
        with pytest.raises(ValueError, match=f"'{next(iter(options))}' parameter"):
            solver(**options).fit(X, y)
    chosen = solver("g", selection="active", max_examples=300).fit(X, y)
    assert chosen.n_support_.sum() < 300


@pytest.mark.parametrize(
    "options", [{}, {"variant": "g"}, {"variant": "i", "selection": "active", "max_examples": 600}]
)
def test_clusters_give_the_local_model(tmp_path, options):
    data = noisy(tmp_path / "data.zarr", rows=2000, width=8)
    expected = solver(**options).fit(data)
    for workers in (1, 2):
        with cluster(workers) as client:
            model = solver(**options, client=client).fit(data)
            assert digest(model) == digest(expected)
            assert history(model) == history(expected)


def test_several_classes_on_a_cluster(tmp_path):
    X, y = load_digits(return_X_y=True)
    data = Dataset.create(tmp_path / "digits", X.astype(np.float32) / 16, y, chunk_rows=300, random_state=0)
    expected = solver(gamma=0.05).fit(data)
    with cluster() as client:
        assert digest(solver(gamma=0.05, client=client).fit(data)) == digest(expected)
