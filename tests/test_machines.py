"""MulticlassSVC: the machines trained locally and on clusters, compared with optimisers and certificates."""

import pickle

import dask.config
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC
from sklearn.utils import shuffle
from sklearn.utils.estimator_checks import parametrize_with_checks

from dasksvm import Dataset, HeldOut, MulticlassSVC, load, train
from dasksvm.estimators.problem import read_problem
from dasksvm.solver.engine import learner_state
from dasksvm.solver.engine.selection import RandomOrder
from dasksvm.solver.multiclass.structure import machine
from dasksvm.training.local_executor import LocalExecutor
from tests.clusters import cluster, digest, history
from tests.test_multiclass_core import Problem

# Every kind of step is compiled separately: a minute with an empty cache.
pytestmark = pytest.mark.slow
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": "one pass is not the optimum; scikit-learn excuses its SVC and SGD",
    "check_sample_weight_equivalence_on_sparse_data": "one pass is not the optimum; scikit-learn excuses its SVC and SGD",
}
every_machine = pytest.mark.parametrize("name", ["ww", "cs", "llw"])


@parametrize_with_checks([MulticlassSVC(random_state=0)], expected_failed_checks=lambda estimator: EXPECTED)
def test_scikit_learn_compatible(estimator, check):
    check(estimator)


def digits(count=500):
    X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
    return X[:count] / 16, y[:count], X[1000:] / 16, y[1000:]


def solver(name="cs", **options):
    return MulticlassSVC(**({"machine": name, "C": 5.0, "gamma": 0.05, "random_state": 0} | options))


@every_machine
@pytest.mark.parametrize("how", ["batch", "online"])
def test_the_optimum_is_that_of_a_general_optimiser(name, how):
    problem = Problem(machine(name, 4))
    options = {"solver": how, "epochs": "converged", "dtype": "float64", "tol": 1e-6, "C": 1.0, "gamma": 0.4}
    model = solver(name, **options).fit(problem.X, problem.labels, sample_weight=problem.bound)
    assert model.dual_objective_ == pytest.approx(problem.optimum(), rel=1e-8)
    alpha = np.zeros((4, 30))
    alpha[:, model.support_] = model.alpha_
    problem.assert_optimal(alpha, 2e-6)
    np.testing.assert_allclose(model.decision_function(problem.X), problem.margins(alpha).T, atol=1e-9)


@every_machine
def test_one_pass_comes_near_and_more_reach_the_optimum(name):
    X, y, X_test, y_test = digits()
    batch = solver(name, solver="batch").fit(X, y)
    primal, dual, gap = batch.duality_gap(X, y)
    assert dual == pytest.approx(batch.dual_objective_)
    assert -1e-6 * primal < gap < 2e-4 * primal
    for options in ({}, {"working_set": "all"}, {"working_set": "within-pattern"}, {"old_new": True}):
        assert 0.7 * dual < solver(name, **options).fit(X, y).dual_objective_ < dual
    for options in ({"schedule": "fixed"}, {"finish": True}):
        model = solver(name, **options).fit(X, y)
        assert 0.95 * dual < model.dual_objective_ < dual
        assert model.score(X_test, y_test) > batch.score(X_test, y_test) - 0.02
    converged = solver(name, epochs="converged").fit(X, y)
    assert converged.dual_objective_ == pytest.approx(dual, rel=1e-4)
    assert np.all(np.abs(batch.dual_coef_.sum(axis=0)) < 1e-9 * np.abs(batch.dual_coef_).max())


def test_larank_reaches_the_optimum_of_crammer_and_singer():
    X, y, _, _ = digits(300)
    dual = solver(solver="batch").fit(X, y).dual_objective_
    once = solver(solver="larank").fit(X, y)
    assert 0.5 * dual < once.dual_objective_ < dual
    assert solver(solver="larank", epochs="converged").fit(X, y).dual_objective_ == pytest.approx(dual, rel=1e-4)
    with pytest.raises(ValueError, match="machine 'cs' only"):
        solver("ww", solver="larank").fit(X, y)


@every_machine
def test_threads_a_small_cache_and_sparse_rows_change_little(name):
    X, y, _, _ = digits(400)
    with dask.config.set({"dasksvm.threads": 1}):
        alone = digest(solver(name).fit(X, y))
    with dask.config.set({"dasksvm.threads": 3}):
        assert digest(solver(name).fit(X, y)) == alone
    small = solver(name, cache_size=1e-3, solver="batch").fit(X, y)
    assert small.dual_objective_ == pytest.approx(solver(name, solver="batch").fit(X, y).dual_objective_, rel=1e-5)
    sparse = solver(name, solver="batch").fit(sp.csr_matrix(np.where(X > 0.9, X, 0)), y)
    dense = solver(name, solver="batch").fit(np.where(X > 0.9, X, 0), y)
    assert sparse.dual_objective_ == pytest.approx(dense.dual_objective_, rel=1e-5)


def test_two_classes_are_one_difference():
    X, y, X_test, y_test = digits(600)
    model = solver("ww", solver="batch", tol=1e-5, dtype="float64").fit(X, y > 4)
    assert model.dual_coef_.shape[0] == 1
    assert model.decision_function(X_test).shape == (len(X_test),)
    assert np.array_equal(model.predict(X_test), model.decision_function(X_test) > 0)
    primal, _, gap = model.duality_gap(X, y > 4)
    assert 0 <= gap < 1e-4 * primal
    assert model.score(X_test, y_test > 4) > SVC(C=5, gamma=0.05).fit(X, y > 4).score(X_test, y_test > 4) - 0.02


def test_streams_weights_held_out_sets_and_files(tmp_path):
    X, y, X_test, y_test = digits(800)
    names = np.array([f"digit {label}" for label in range(10)])
    watched = HeldOut(X_test, names[y_test], every=200)
    model = train((X, names[y]), solver("llw"), callbacks=[watched]).estimator
    assert digest(model) == digest(solver("llw").fit(X, names[y]))
    assert watched.entries[-1]["error"] == pytest.approx(1 - model.score(X_test, names[y_test]))
    model.model_.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").predict(X_test), model.predict(X_test))
    again = pickle.loads(pickle.dumps(model))
    stream = solver("llw")
    for start in range(0, 800, 400):
        part = slice(start, start + 400)
        stream.partial_fit(X[part], y[part], classes=np.arange(10))
    assert stream.score(X_test, y_test) > 0.9
    assert again.partial_fit(X, names[y]).score(X_test, names[y_test]) > 0.9
    heavy = solver(solver="batch", class_weight={**dict.fromkeys(range(10), 1.0), 3: 0.0}).fit(X, y)
    assert heavy.n_support_[3] == 0


class Counted:
    """A callback that counts its calls and stops the run after `limit` of them."""

    def __init__(self, limit=-1):
        self.limit, self.count = limit, 0

    def __call__(self, progress, seconds):
        self.count += 1
        if self.count == self.limit:
            raise InterruptedError
        return False


@every_machine
@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_a_run_continues_from_its_saved_state(name, share):
    X, y, _, _ = digits(400)

    def fed():
        estimator = solver(name, epochs="converged", cache_size=0.2)
        problem = read_problem(estimator, X, y, None, reset=True)
        learner, examples, seed = estimator._prepare(problem, estimator._coding(problem), 0)
        learner.feed(RandomOrder(examples.source.chunks, seed), np.arange(20))
        return learner, examples

    whole, examples = fed()
    counted = Counted()
    LocalExecutor(whole, examples, 1).run(counted)
    whole.expansion.check(1e-2)
    half, examples = fed()
    with pytest.raises(InterruptedError):
        LocalExecutor(half, examples, 1).run(Counted(int(share * counted.count)))
    state = learner_state.state(half)
    assert all(isinstance(value, np.ndarray | int | float | bool | str | np.generic) for value in state.values())
    resumed = learner_state.restore(half.settings, state)
    LocalExecutor(resumed, examples, 1).run(Counted())
    for one, other in zip(whole.solution(), resumed.solution(), strict=True):
        assert np.array_equal(one, other)


def test_clusters_give_the_local_model(tmp_path):
    X, y, _, _ = digits(700)
    data = Dataset.create(tmp_path / "digits", X.astype(np.float32), y, chunk_rows=150, random_state=0)
    for options in ({}, {"solver": "larank"}, {"name": "llw", "solver": "batch"}):
        expected = solver(**options).fit(data)
        with cluster() as client:
            model = solver(**options, client=client).fit(data)
            assert digest(model) == digest(expected)
            assert history(model) == history(expected)


def test_a_tol_below_rounding_gives_a_warning():
    X, y, _, _ = digits(150)
    with pytest.warns(ConvergenceWarning, match="did not reach"):
        solver(solver="batch", tol=1e-300).fit(X, y)


@pytest.mark.parametrize("name", ["cs", "llw"])
@pytest.mark.filterwarnings("default:MulticlassSVC ended early:sklearn.exceptions.ConvergenceWarning")
def test_the_batch_solver_alternates_between_entering_and_solving(name, monkeypatch):
    X, y, _, _ = digits(900)
    expected = solver(name, solver="batch").fit(X, y)
    monkeypatch.setattr("dasksvm.solver.multiclass.learner.LEAST_HELD", 100)
    model = solver(name, solver="batch").fit(X, y)
    assert model.dual_objective_ == pytest.approx(expected.dual_objective_, rel=1e-5)
    assert sum(entry["phase"] == "online" for entry in model.history_) > 5
    few = solver(name, solver="batch", max_support=60).fit(X, y)
    assert 60 <= few.n_support_.sum() < 700  # results in flight are still processed
    stream = solver(name, solver="batch")
    for start in range(0, 900, 300):
        stream.partial_fit(X[start : start + 300], y[start : start + 300], classes=np.arange(10))
    assert len(stream._running[0].expansion.examples()) == stream.n_support_.sum()
    # A snapshot while patterns are entering.
    estimator = solver(name, solver="batch")
    problem = read_problem(estimator, X, y, None, reset=True)
    learner, examples, seed = estimator._prepare(problem, estimator._coding(problem), 0)
    learner.feed(RandomOrder(examples.source.chunks, seed), np.arange(20))
    watcher = Counted()

    def until_paused(progress, seconds):
        watcher(progress, seconds)
        if learner.paused:
            raise InterruptedError
        return False

    with pytest.raises(InterruptedError):
        LocalExecutor(learner, examples, 1).run(until_paused)
    resumed = learner_state.restore(learner.settings, learner_state.state(learner))
    LocalExecutor(learner, examples, 1).run(Counted())
    LocalExecutor(resumed, examples, 1).run(Counted())
    for one, other in zip(learner.solution(), resumed.solution(), strict=True):
        assert np.array_equal(one, other)


def test_a_batch_run_stopped_during_a_pause_solves_for_its_members(monkeypatch):
    X, y, _, _ = digits(900)
    monkeypatch.setattr("dasksvm.solver.multiclass.learner.LEAST_HELD", 200)
    estimator = solver("llw", solver="batch", cache_size=0.1)
    problem = read_problem(estimator, X, y, None, reset=True)
    learner, examples, seed = estimator._prepare(problem, estimator._coding(problem), 0)
    learner.feed(RandomOrder(examples.source.chunks, seed), np.arange(20))
    seen = []

    def stop_in_coarse_finishing(progress, seconds):
        coarse = learner.paused and learner.phase == "finishing" and bool(learner.finishing)
        seen.append(coarse)
        return coarse

    LocalExecutor(learner, examples, 1).run(stop_in_coarse_finishing)
    assert any(seen)
    assert learner.stopped
    assert learner.progress().delta[0] <= 1e-3
