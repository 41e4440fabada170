"""Active learning: which rows are asked for, what their labels do, and that no other label is read."""

import pickle
import shutil

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from dasksvm import ActiveLearner, Dataset, LaSVC, load
from dasksvm.solver.engine.choice import near_boundary
from tests.clusters import cluster
from tests.helpers import kernel_matrix

GAMMA = 0.3


def rows(count, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 4)).astype(np.float32)
    return X, np.where(X[:, 0] * X[:, 1] + 0.3 * X[:, 2] > 0, "yes", "no")


def solver(**parameters):
    return LaSVC(**({"C": 10, "gamma": GAMMA, "random_state": 0, "dtype": "float64"} | parameters))


def taught(pool, X, y, count=60, **options):
    """A learner that knows the labels of a few rows."""
    estimator = options.pop("estimator", None) or solver()
    return ActiveLearner(estimator, pool, **options).teach(np.arange(count), y[:count])


def distances(learner, X):
    """|ŷ| of some rows, from the coefficients of the online state and a matrix of kernel values."""
    s = learner._learner.expansion
    live = np.flatnonzero(s.working.holders[: s.places])
    alpha, members = s.working.alpha[0, live], learner.ids[s.example[live]]
    lower, upper = s.working.lower[0, live], s.working.upper[0, live]
    signs = np.where(learner.labels[s.example[live]] == "yes", 1.0, -1.0)
    pool = X.astype(np.float64)
    g = signs - kernel_matrix("rbf", pool[members], pool[members], GAMMA, 0, 0) @ alpha
    b = (g[alpha < upper].max() + g[alpha > lower].min()) / 2
    return np.abs(kernel_matrix("rbf", pool, pool[members], GAMMA, 0, 0) @ alpha + b)


@pytest.mark.parametrize(
    "kind", ["numpy", "csr", "dask", "empty chunks", "zarr", "sparse zarr", "scaled zarr", "cluster"]
)
def test_whole_pool_search_finds_the_nearest(kind, tmp_path):
    X, y = rows(3000)
    pool = X
    if kind == "csr":
        pool = sp.csr_matrix(X)
    elif kind == "dask":
        pool = da.from_array(X, chunks=(700, 2))
    elif kind == "empty chunks":
        pool = da.concatenate([da.from_array(X, chunks=(700, 4))[:800], da.from_array(X)[:0], da.from_array(X)[800:]])
    elif kind != "numpy":
        given = {"sparse zarr": sp.csr_matrix(X), "scaled zarr": X * np.float32(100) + np.float32(9)}.get(kind, X)
        scale = "standard" if kind == "scaled zarr" else "none"
        pool = Dataset.create(tmp_path / "pool.zarr", given, y, chunk_rows=400, shuffle=False, scale=scale)
        X = X if scale == "none" else (X - X.mean(axis=0, dtype=float)) / X.std(axis=0, dtype=float)
    learner = taught(pool, X, y, candidates="all")
    expected = np.argsort(distances(learner, X) + 1e9 * (np.arange(3000) < 60))
    if kind == "cluster":
        with cluster() as client:
            learner.estimator.set_params(client=client)
            found = learner.query(25)
        learner.estimator.set_params(client=None)
    else:
        found = learner.query(25)
    assert found.tolist() == expected[:25].tolist()
    assert learner.query(5).tolist() == expected[25:30].tolist()


def test_random_search_asks_for_the_best_of_its_candidates():
    X, y = rows(3000)
    learner = taught(X, X, y, candidates=30)
    distance = distances(learner, X)
    rank = np.argsort(np.argsort(distance[60:]))
    found = learner.query(80)
    assert len(set(found.tolist())) == 80
    assert found.min() >= 60
    assert np.mean(rank[found - 60] / 2940) == pytest.approx(1 / 31, abs=0.015)
    assert not set(learner.query(500).tolist()) & set(found.tolist())


def test_queries_end_with_the_pool():
    X, y = rows(200)
    learner = taught(X, X, y, candidates=30)
    asked = np.concatenate([learner.query(50) for _ in range(4)])
    assert sorted(asked.tolist()) == list(range(60, 200))
    assert len(learner.query(1)) == 0
    everything = taught(X, X, y, candidates="all")
    assert sorted(everything.query(500).tolist()) == list(range(60, 200))
    assert len(everything.query(1)) == 0


def test_labels_are_never_read(tmp_path, monkeypatch):
    X, y = rows(1500)
    data = Dataset.create(tmp_path / "pool.zarr", X, y, chunk_rows=300, random_state=0)
    source = data.source_rows(np.arange(1500))
    shutil.rmtree(tmp_path / "pool.zarr" / "y")
    for name in ("codes", "labels", "as_dask"):
        monkeypatch.setattr(Dataset, name, None)
    for candidates in (20, "all"):
        learner = ActiveLearner(solver(), data, candidates=candidates)
        while len(learner.ids) < 120:
            ids = learner.query(10)
            learner.teach(ids, y[source[ids]])
        assert learner.score(X, y) > 0.85
        assert set(learner.estimator_.support_) <= set(source[learner.ids])


@pytest.mark.parametrize("sparse", [False, True])
def test_each_label_makes_one_iteration(sparse):
    X, y = rows(400)
    pool = sp.csr_matrix(X) if sparse else X
    together, one_by_one = (taught(pool, X, y, estimator=solver(tol=1e-7)) for _ in range(2))
    seen = together._learner.seen
    together.teach(np.arange(100, 160), y[100:160])
    for at in range(100, 160):
        one_by_one.teach(at, y[at])
    assert together._learner.seen == one_by_one._learner.seen == seen + 60
    # Both ends of an exact step have one gradient: which is chosen next hangs on the last bit, and so does who is a member.
    values = together.decision_function(X), one_by_one.decision_function(X)
    duals = [learner.estimator_.dual_objective_ for learner in (together, one_by_one)]
    assert duals[0] == pytest.approx(duals[1], rel=0.01)
    assert np.mean(np.sign(values[0]) != np.sign(values[1])) <= 0.01
    one_by_one._learner.expansion.check(1e-6)


def test_retraining_reaches_the_optimum_of_the_labels_each_time():
    X, y = rows(400)
    learner = taught(X, X, y, retrain=True, estimator=solver(tol=1e-6))
    for start in (60, 61, 100):
        stop = {60: 61, 61: 100, 100: 250}[start]
        learner.teach(np.arange(start, stop), y[start:stop])
        exact = solver(epochs="converged", tol=1e-6).fit(X[:stop], y[:stop])
        assert learner.estimator_.dual_objective_ == pytest.approx(exact.dual_objective_, rel=1e-7)


def test_it_asks_at_random_until_it_has_labels_of_both_classes():
    X, y = rows(500)
    rare = np.flatnonzero(y == "yes")[10:]
    X, y = np.delete(X, rare, axis=0), np.delete(y, rare)
    learner = ActiveLearner(solver(), X, first=3)
    asked = []
    while not learner.started:
        with pytest.raises(NotFittedError, match="too few labels"):
            _ = learner.estimator_
        ids = learner.query(10)
        asked += ids.tolist()
        learner.teach(ids, y[ids])
    counts = np.unique(learner.labels, return_counts=True)[1]
    assert counts.min() >= 3
    assert len(set(asked)) == len(asked) == len(learner.ids)
    assert learner.predict(X).shape == (len(X),)


@pytest.mark.parametrize("kind", ["numpy", "csr", "dask", "zarr", "sparse zarr"])
def test_until_it_has_started_it_predicts_the_prior(kind, tmp_path):
    X, y = rows(50)
    given = (
        sp.csr_matrix(X) if "csr" in kind or "sparse" in kind else da.from_array(X, chunks=20) if kind == "dask" else X
    )
    if "zarr" in kind:
        given = Dataset.create(tmp_path / "pool.zarr", given, y, shuffle=False)
    learner = ActiveLearner(solver(), given)
    for ask in (learner.predict, learner.decision_function, learner.score):
        with pytest.raises(NotFittedError, match="no labels yet"):
            ask(given)
    no, yes = np.flatnonzero(y == "no"), np.flatnonzero(y == "yes")
    # What is taught, and what comes of it: a decision value, positive for "yes".
    for ids, value, expected in (
        (yes[:2], -1.0, "yes"),
        (no[:1], 1 / 3, "yes"),
        (no[1:2], 0.0, "no"),
        (no[2:4], -1 / 3, "no"),
    ):
        learner.teach(ids, y[ids])
        found = learner.predict(given), learner.decision_function(given)
        labels, values = (np.asarray(each.compute() if hasattr(each, "compute") else each) for each in found)
        assert labels.tolist() == [expected] * 50
        assert values.tolist() == pytest.approx([value] * 50)
        score = learner.score(given) if "zarr" in kind else learner.score(given, y)
        assert score == pytest.approx(np.mean(y == expected))
    assert not learner.started
    with pytest.raises(ValueError, match="X has 3 features"):
        learner.predict(X[:, :3])


def test_more_than_two_classes_are_refused_before_labels_are_paid_for(tmp_path):
    X, y = rows(60)
    three = np.where(X[:, 2] > 0.5, "maybe", y)
    pool = Dataset.create(tmp_path / "pool.zarr", X, three)
    for given in (pool, pool.path):
        with pytest.raises(ValueError, match=r"a pool of two classes; .*pool.zarr has \['maybe', 'no', 'yes'\]"):
            ActiveLearner(solver(), given)
    learner = ActiveLearner(solver(), X)
    at = [int(np.argmax(three == label)) for label in ("maybe", "no", "yes")]
    learner.teach(at[:2], three[at[:2]])
    with pytest.raises(ValueError, match="labels must be of two classes"):
        learner.teach(at[2:], three[at[2:]])
    assert learner.ids.tolist() == at[:2]
    weighted = ActiveLearner(solver(class_weight={"no": 1, "yes": 2}), X)
    with pytest.raises(ValueError, match="not in class_weight"):
        weighted.teach(at[:1], three[at[:1]])
    assert len(weighted.ids) == 0


@pytest.mark.parametrize("each", [1, 4])
def test_autoactive_sampling_goes_on_until_five_are_near(each):
    X, y = rows(4000)
    X *= 3
    learner = taught(X, X, y, 100, selection="autoactive", candidates=30, estimator=solver(C=100))
    sampled = []
    put_back = learner._pools.put_back
    learner._pools.put_back = lambda drawn, chosen, count: (
        sampled.append(count / len(chosen)),
        put_back(drawn, chosen, count),
    )
    share = np.mean(distances(learner, X) < near_boundary(learner._view())[0])
    for _ in range(40 // each):
        assert len(learner.query(each)) == each
    assert np.mean(sampled) == pytest.approx(5 / share, rel=0.15)


def test_active_queries_beat_random_ones():
    X, y = rows(4000)
    X_test, y_test = rows(4000, 1)
    errors = {}
    for selection in ("random", "active", "autoactive"):
        found = []
        for seed in range(3):
            learner = ActiveLearner(solver(random_state=seed), X, selection=selection)
            while len(learner.ids) < 200:
                ids = learner.query(5)
                learner.teach(ids, y[ids])
            found.append(1 - learner.score(X_test, y_test))
        errors[selection] = np.mean(found)
    assert errors["active"] < 0.7 * errors["random"]
    assert errors["autoactive"] < 0.8 * errors["random"]


def test_the_fitted_estimator_is_complete(tmp_path):
    X, y = rows(300)
    learner = taught(X, X, y)
    fitted = learner.estimator_
    assert learner.estimator_ is fitted
    assert set(fitted.support_) <= set(range(60))
    assert np.array_equal(fitted.support_vectors_, X[fitted.support_])
    assert np.all(np.diff(np.sign(fitted.dual_coef_[0])) >= 0)
    assert fitted.n_support_.tolist() == [np.sum(fitted.dual_coef_ < 0), np.sum(fitted.dual_coef_ > 0)]
    learner.model_.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").predict(X), learner.predict(X))
    learner.teach([100], [y[100]])
    assert learner.estimator_ is not fitted


def test_class_weights_and_budgets_of_the_estimator():
    X, y = rows(300)
    weighted = taught(X, X, y, estimator=solver(C=0.1, class_weight={"no": 1, "yes": 5}, max_examples=5, max_support=4))
    alpha = weighted.estimator_.dual_coef_
    assert alpha.max() == pytest.approx(0.5)
    assert alpha.min() == pytest.approx(-0.1)
    assert len(weighted.estimator_.support_) > 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"selection": "gradient"}, "selection"),
        ({"candidates": 0}, "candidates"),
        ({"candidates": "some"}, "candidates"),
        ({"first": 0}, "first"),
        ({"retrain": 1}, "retrain"),
        ({"selection": "autoactive", "candidates": "all"}, "nothing to sample"),
        ({"estimator": solver(C=-1)}, "'C'"),
        ({"estimator": solver(class_weight="balanced")}, "balanced"),
    ],
)
def test_parameters_are_checked(options, message):
    X, y = rows(100)
    with pytest.raises(ValueError, match=message):
        taught(X, X, y, **options)


def test_wrong_labels_are_refused_and_change_nothing():
    X, y = rows(100)
    learner = taught(X, X, y)
    for ids, labels, message in [
        ([70], ["maybe"], "two classes"),
        ([70, 70], ["yes", "no"], "twice"),
        ([3], ["yes"], "already"),
        ([100], ["yes"], "from 0 to 99"),
        ([-1], ["yes"], "from 0 to 99"),
        ([0.5], ["yes"], "row numbers"),
        ([70, 71], ["yes"], "2 ids, but 1"),
        ([70], [0.5], "continuous"),
    ]:
        with pytest.raises(ValueError, match=message):
            learner.teach(ids, labels)
    assert len(learner.ids) == 60
    assert learner.teach([], []) is learner
    for count in (0, 2.5):
        with pytest.raises(ValueError, match="count"):
            learner.query(count)
    fresh = ActiveLearner(solver(class_weight={"maybe": 5}), X, first=1)
    fresh.teach([0], y[:1])
    other = int(np.argmax(y != y[0]))
    with pytest.raises(ValueError, match="not in class_weight"):
        fresh.teach([other], [y[other]])
    assert fresh.ids.tolist() == [0]


def test_it_goes_through_pickle_before_and_after_it_has_started():
    X, y = rows(200)
    for learner in (ActiveLearner(solver(), X), taught(X, X, y)):
        copy = pickle.loads(pickle.dumps(learner))
        assert copy.query(3).tolist() == learner.query(3).tolist()
