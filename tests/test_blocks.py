"""The batch solver in blocks, compared with independent solutions."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from dasksvm import SMOSVC, LaSVC, train
from dasksvm.solver.blocks.exact_learner import ExactLearner
from dasksvm.solver.decomposition.rules import BlockRules
from dasksvm.solver.decomposition.starting_point import StartingPoint
from dasksvm.solver.engine import learner_state
from dasksvm.solver.engine.learners import make_learner
from dasksvm.solver.engine.selection import RandomOrder
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.state.expansion import SEEDS
from tests.clusters import cluster, digest, noisy
from tests.helpers import Rows, blobs, coefficients, decomposing, exact_dual, kernel_matrix, run
from tests.test_learner import drive

KERNEL = Kernel("rbf", 0.5)


EXPECTED = {
    f"check_sample_weight_equivalence_on_{kind}_data": "equal to tol only; scikit-learn excuses its SVC"
    for kind in ("dense", "sparse")
}


@parametrize_with_checks([SMOSVC()], expected_failed_checks=lambda estimator: EXPECTED)
def test_scikit_learn_compatible(estimator, check):
    check(estimator)


def learner_for(rows, kernel=KERNEL, *, seed=0, tau=1e-3, cache_bytes=100 << 20, start=None, working_set=64, **rules):
    """A learner with batches and working sets so small that small problems need many of them."""
    given = BlockRules(**({"selection": "second-order", "shrinking": True, "limit": 1 << 60} | rules))
    sizes = {"batch": 100, "working_set": working_set}
    learner = make_learner(decomposing(kernel, given, tol=tau, cache_bytes=cache_bytes, seed=seed, **sizes))
    order = RandomOrder((len(rows.sign),), seed)
    ids = order.rows(0, 0, len(rows.sign))
    if start is not None:
        held = np.flatnonzero(start)
        learner.start = StartingPoint(held, start[None, held])
    learner.feed(order, np.concatenate([ids[rows.sign[ids] == label][:SEEDS] for label in (-1, 1)]))
    return learner


def moons(n, dtype=np.float64, c=10.0, seed=0):
    X, y = make_moons(n, noise=0.3, random_state=seed)
    return Rows(X, 2 * y - 1, np.full(n, c), dtype)


def violation(K, rows, alpha):
    """The largest violation of any pair of examples."""
    g = rows.sign - K @ alpha
    lower, upper = np.minimum(0, rows.bound * rows.sign), np.maximum(0, rows.bound * rows.sign)
    return g[alpha < upper].max() - g[alpha > lower].min()


def gram(rows, kernel=KERNEL):
    X = rows.all.values.astype(np.float64)
    return kernel_matrix(kernel.name, X, X, kernel.gamma, kernel.coef0, kernel.degree)


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 20))])
def test_dual_is_that_of_a_general_optimiser(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(12, 40))
    X, y = blobs(n, d=3, seed=seed)
    kernel = [Kernel("rbf", 0.5), Kernel("linear"), Kernel("poly", 0.3, 1.0, 2)][seed % 3]
    rows = Rows(X, y, rng.choice([0.3, 1.0, 5.0], n))
    K = gram(rows, kernel)
    alpha = coefficients(run(learner_for(rows, kernel, tau=1e-7), rows), n)
    assert alpha @ y - 0.5 * alpha @ K @ alpha == pytest.approx(exact_dual(K, y, rows.bound), rel=1e-6, abs=1e-6)
    assert violation(K, rows, alpha) <= 2e-7


@pytest.mark.parametrize(
    "kernel", [Kernel("rbf", 1.0), Kernel("rbf", 0.05), Kernel("poly", 0.5, 1.0, 3), Kernel("linear")]
)
@pytest.mark.parametrize("c", [0.01, 1.0, 300.0])
def test_no_example_of_the_whole_set_violates(kernel, c):
    rows = moons(700, c=c)
    learner = run(learner_for(rows, kernel), rows)
    assert learner.converged
    assert violation(gram(rows, kernel), rows, coefficients(learner, 700)) <= 1e-3 * (1 + 1e-6)


def test_single_precision_is_checked_in_double():
    rows = moons(1500, np.float32, c=100.0)
    learner = run(learner_for(rows), rows)
    assert learner.refreshes >= 1
    assert violation(gram(rows), rows, coefficients(learner, 1500)) <= 1.1e-3


def test_examples_far_from_the_margin_are_not_scored_again(monkeypatch):
    kernel = Kernel("rbf", 0.05)
    rows = Rows(*blobs(2000, seed=3, shift=1.0), np.full(2000, 10.0))
    lazy = run(learner_for(rows, kernel), rows)
    assert violation(gram(rows, kernel), rows, coefficients(lazy, 2000)) <= 1e-3 * (1 + 1e-6)
    monkeypatch.setattr(ExactLearner, "_may_violate", lambda self: np.ones(2000, np.bool_))
    eager = run(learner_for(rows, kernel), rows)
    assert lazy.progress().dual == pytest.approx(eager.progress().dual, rel=1e-6)
    assert lazy.progress().seen < 0.7 * eager.progress().seen


@hypothesis.settings(max_examples=12)
@hypothesis.given(
    seed=st.integers(0, 1000),
    c=st.sampled_from([0.05, 1.0, 50.0]),
    size=st.integers(30, 400),
    cache=st.sampled_from([0, 1 << 18, 1 << 24]),
)
def test_invariants(seed, c, size, cache):
    X, y = blobs(size, d=3, seed=seed)
    rows = Rows(X, y, np.full(size, c))
    learner = learner_for(rows, Kernel("rbf", 0.3), cache_bytes=cache, seed=seed)
    duals = [0.0]

    def watch(progress, seconds):
        if progress.phase not in ("finishing", "surveying"):
            learner.expansion.check(1e-6)
        duals.append(float(progress.dual[0]))
        return False

    run(learner, rows, watch=watch)
    assert np.all(np.diff(duals) >= -1e-9 * max(duals))
    K = gram(rows, Kernel("rbf", 0.3))
    assert violation(K, rows, coefficients(learner, size)) <= 1e-3 * (1 + 1e-6)


def test_bias_without_free_support_vectors_is_that_of_the_whole_set():
    X, y = blobs(300, seed=1)
    y = np.where(np.argsort(np.argsort(y, kind="stable")) < 150, -1, 1)
    model = SMOSVC(C=1e-3, gamma=0.2, dtype="float64", random_state=0).fit(X, y)
    peer = SVC(C=1e-3, gamma=0.2, tol=1e-8).fit(X, y)
    assert np.all(np.abs(model.dual_coef_) == 1e-3)
    assert model.intercept_ == pytest.approx(peer.intercept_, abs=2e-3)


@pytest.mark.parametrize("working_set", ["second-order", "mvp", "hmg"])
def test_optimum_is_that_of_libsvm(working_set):
    X, y = make_moons(900, noise=0.3, random_state=1)
    model = SMOSVC(C=10, gamma=1.0, dtype="float64", tol=1e-4, working_set=working_set, random_state=0).fit(X, y)
    peer = SVC(C=10, gamma=1.0, tol=1e-5).fit(X, y)
    K = kernel_matrix("rbf", peer.support_vectors_, peer.support_vectors_, 1.0, 0, 0)
    dual = np.abs(peer.dual_coef_).sum() - 0.5 * float((peer.dual_coef_ @ K @ peer.dual_coef_.T)[0, 0])
    assert model.dual_objective_ == pytest.approx(dual, rel=1e-6)
    np.testing.assert_allclose(model.decision_function(X), peer.decision_function(X), atol=2e-3)
    assert model.duality_gap(X, y)[2] <= 1e-3 * dual


def test_weights_scale_the_boxes():
    X, y = blobs(400, seed=4)
    weight = np.where(np.arange(400) % 3 == 0, 0.0, 2.0)
    parameters = {"gamma": 0.2, "class_weight": {-1: 0.5, 1: 3.0}}
    model = SMOSVC(C=2, dtype="float64", tol=1e-5, random_state=0, **parameters).fit(X, y, weight)
    peer = SVC(C=2, tol=1e-6, **parameters).fit(X, y, weight)
    assert not np.any(np.isin(model.support_, np.flatnonzero(weight == 0)))
    np.testing.assert_allclose(model.decision_function(X), peer.decision_function(X), atol=1e-4)


def test_sparse_rows_give_the_dense_solution():
    X, y = blobs(500, d=12, seed=6)
    X[np.random.default_rng(0).random(X.shape) < 0.9] = 0.0
    dense, sparse = (
        SMOSVC(C=3, gamma=0.3, dtype="float64", tol=1e-6, random_state=0).fit(rows, y) for rows in (X, sp.csr_matrix(X))
    )
    assert sparse.dual_objective_ == pytest.approx(dense.dual_objective_, rel=1e-9)


@pytest.mark.parametrize("shape", ["ovr", "ovo"])
def test_several_classes_are_separate_problems_over_shared_rows(shape):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=600), [-0.5, 0.5])
    parameters = {"C": 5.0, "gamma": 0.3, "dtype": "float64", "tol": 1e-6, "random_state": 0}
    together = SMOSVC(**parameters, decision_function_shape=shape).fit(X, y)
    pairs = [(0, 1), (0, 2), (1, 2)]
    for p in range(3):
        of = y == p if shape == "ovr" else np.where(y == pairs[p][0], 1, -1)
        rows = np.arange(600) if shape == "ovr" else np.flatnonzero(np.isin(y, pairs[p]))
        alone = SMOSVC(**parameters).fit(X[rows], of[rows])
        np.testing.assert_allclose(together.decision_function(X)[:, p], alone.decision_function(X), atol=1e-5)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.7, 0.95])
def test_a_run_continues_from_its_saved_state(share):
    rows = moons(700, np.float32)
    whole = learner_for(rows, cache_bytes=1 << 19)
    results = drive(whole, rows)
    half = learner_for(rows, cache_bytes=1 << 19)
    drive(half, rows, stop_after=max(1, int(share * results)))
    state = learner_state.state(half)
    drive(half, rows, stop_after=3)
    resumed = learner_state.restore(half.settings, state)
    drive(resumed, rows)
    assert np.array_equal(coefficients(whole, 700), coefficients(resumed, 700))
    assert np.array_equal(whole.extremes, resumed.extremes)
    assert whole.progress().evaluations == resumed.progress().evaluations


def test_threads_do_not_change_a_bit():
    rows = moons(1200, np.float32)
    one, two = (coefficients(run(learner_for(rows), rows, threads), 1200) for threads in (1, 2))
    assert np.array_equal(one, two)


@pytest.mark.parametrize("given", [0.0, 0.9, 1.0])
def test_the_solver_begins_at_the_given_start(given):
    rows = moons(800)
    K = gram(rows)
    optimum = coefficients(run(learner_for(rows, tau=1e-6), rows), 800)
    learner = run(learner_for(rows, tau=1e-6, start=given * optimum), rows)
    alpha = coefficients(learner, 800)
    assert violation(K, rows, alpha) <= 1e-6 * (1 + 1e-6)
    # Both are optimal to tau: along the line between them neither dual rises by more than tau / 2 for each unit moved.
    move = alpha - optimum
    assert move @ K @ move <= 1e-6 * (1 + 1e-6) * np.abs(move).sum()
    assert learner.progress().steps < 20 or given < 1.0


@pytest.mark.parametrize("results", [1, 2])
def test_a_run_that_is_stopped_while_it_takes_in_a_large_start_is_consistent(results):
    """The coefficients of a part of the start do not add up to 0, and are not used."""
    rows = moons(2000, c=0.05)
    K = gram(rows)
    optimum = coefficients(run(learner_for(rows), rows), 2000)
    assert np.count_nonzero(optimum) > 600
    learner = learner_for(rows, start=optimum)
    run(learner, rows, watch=lambda progress, seconds: learner.applied >= results)
    assert learner.stopped
    alpha = coefficients(learner, 2000)
    assert abs(alpha.sum()) < 1e-9
    assert learner.progress().dual[0] == pytest.approx(alpha @ rows.sign - 0.5 * alpha @ K @ alpha, abs=1e-6)


def test_a_large_start_is_taken_in_whole():
    rows = moons(2000, c=0.05)
    optimum = coefficients(run(learner_for(rows), rows), 2000)
    assert run(learner_for(rows, start=optimum), rows).progress().steps < 20


def test_no_steps_are_left_for_a_round_after_the_last():
    rows = moons(600)
    learner = run(learner_for(rows, limit=30), rows)
    finisher = learner.finisher(learner.expansion, 0, 1e-3)
    assert learner.progress().steps == 30
    assert not finisher.choose(learner.expansion)


def test_budgets_end_a_run_early():
    X, y = make_moons(2000, noise=0.3, random_state=0)
    with pytest.warns(ConvergenceWarning, match="max_iter=50"):
        model = SMOSVC(C=10, gamma=1.0, max_iter=50, random_state=0).fit(X, y)
    assert 0 < model.n_iter_ <= 50
    assert abs(model.dual_coef_.sum()) < 1e-9
    run = train((X, y), SMOSVC(C=10, gamma=1.0, random_state=0), callbacks=[lambda progress, seconds: True])
    assert run.history[-1]["phase"] == "done"


def test_the_steps_of_all_problems_together_are_limited():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(900, 4)), np.arange(900) % 3
    with pytest.warns(ConvergenceWarning, match="max_iter=70 steps; among the examples in its expansion, the largest"):
        model = SMOSVC(C=10, gamma=0.5, max_iter=70, random_state=0).fit(X, y)
    assert 60 <= model.n_iter_ <= 70


def test_there_is_one_engine_for_the_optimum():
    X, y = make_moons(1500, noise=0.3, random_state=0)
    parameters = {"C": 10, "gamma": 1.0, "random_state": 0}
    exact = SMOSVC(**parameters).fit(X, y)
    online = LaSVC(**parameters, engine="blocks", epochs="converged").fit(X, y)
    assert np.array_equal(exact.dual_coef_, online.dual_coef_)
    assert np.array_equal(exact.intercept_, online.intercept_)


def test_cluster_gives_the_local_model(tmp_path):
    data = noisy(tmp_path / "noisy.zarr", rows=1000, chunk_rows=180)
    alone = SMOSVC(C=3.0, random_state=1).fit(data)
    for workers in (1, 2):
        with cluster(workers) as client:
            assert digest(SMOSVC(C=3.0, random_state=1, client=client).fit(data)) == digest(alone)


def test_the_dual_is_larger_than_after_one_online_epoch():
    X, y = make_moons(1500, noise=0.3, random_state=0)
    parameters = {"C": 10, "gamma": 1.0, "random_state": 0}
    assert SMOSVC(**parameters).fit(X, y).dual_objective_ > LaSVC(**parameters).fit(X, y).dual_objective_


@pytest.mark.parametrize("size", [None, 2])
def test_the_solver_improves_the_model_of_another_solver(size):
    X, y = make_moons(1200, noise=0.3, random_state=0)
    parameters = {"C": 10.0, "gamma": 1.0, "dtype": "float64", "random_state": 0}
    near = LaSVC(**parameters, epochs=2).fit(X, y)
    solver = SMOSVC(**parameters, working_set_size=size)
    fresh, polished = solver.fit(X, y).n_iter_, solver.fit(X, y, start=near)
    assert polished.n_iter_ < fresh
    found = polished.certificate(X, y)
    assert found.violation.max() <= 1.1e-3
    assert found.gap < near.duality_gap(X, y)[2]


def test_the_gain_stop_is_refused_with_blocks():
    with pytest.raises(ValueError, match="working_set_size=2"):
        SMOSVC(stop="gain").fit([[0.0], [1.0]], [0, 1])
