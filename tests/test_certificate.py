"""Certificates of models on whole sets, against conditions of the optimum that are written out row by row."""

import threading

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from dasksvm import Certificate, Dataset, GapSVC, LaSVC, MulticlassSVC, TrackingSVC
from dasksvm.estimators import _base, certificate
from tests.clusters import cluster
from tests.helpers import blobs, kernel_matrix

GAMMA = 0.3
OPTIONS = {"C": 2.0, "gamma": GAMMA, "dtype": "float64", "random_state": 0}


def three(n=60, seed=3):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return rng.normal(size=(n, 4)) + 0.8 * np.eye(3)[y] @ np.eye(3, 4), np.array(["a", "b", "c"])[y]


def problems(y, classes, pairwise):
    """Labels of each problem, 0 for who takes no part."""
    if len(classes) == 2:
        return np.where(y == classes[1], 1.0, -1.0)[None]
    if not pairwise:
        return np.array([np.where(y == label, 1.0, -1.0) for label in classes])
    pairs = [(a, b) for a in range(len(classes)) for b in range(a + 1, len(classes))]
    return np.array([1.0 * (y == classes[a]) - (y == classes[b]) for a, b in pairs])


def expected(model, X, y, bound, pairwise=False):
    """Primal, dual and violations, shape (P, n), row by row."""
    K = kernel_matrix("rbf", X, X, GAMMA, 0.0, 0)
    labels = problems(y, model.classes_, pairwise)
    primal = dual = 0.0
    violations = np.zeros(labels.shape)
    for p, sign in enumerate(labels):
        alpha = np.zeros(len(X))
        alpha[model.support_] = model.dual_coef_[p]
        f = K @ alpha + model.intercept_[p]
        primal += 0.5 * alpha @ K @ alpha
        dual += alpha @ sign - 0.5 * alpha @ K @ alpha
        for i in range(len(X)):
            m, a = sign[i] * f[i], abs(alpha[i])
            if sign[i] == 0 or bound[i] == 0:
                continue
            primal += bound[i] * max(0.0, 1 - m)
            if a == 0:
                violations[p, i] = max(0.0, 1 - m)
            else:
                violations[p, i] = max(0.0, m - 1) if a == bound[i] else abs(1 - m)
    return primal, dual, violations


def assert_says(found, primal, dual, violations, worst):
    assert (found.primal, found.dual) == pytest.approx((primal, dual), rel=1e-10)
    assert found.gap == pytest.approx(primal - dual, rel=1e-8, abs=1e-8)
    assert found.relative_gap == pytest.approx((primal - dual) / primal, abs=1e-10)
    np.testing.assert_allclose(found.violation, violations.max(axis=1), atol=1e-10)
    largest = np.sort(violations, axis=None)[::-1][:worst]
    largest = largest[largest > 1e-9]
    assert len(found.rows) == len(found.violations) == len(found.problems) <= worst
    np.testing.assert_allclose(found.violations[: len(largest)], largest, atol=1e-10)
    np.testing.assert_allclose(violations[found.problems, found.rows], found.violations, atol=1e-10)
    assert len(set(zip(found.rows.tolist(), found.problems.tolist(), strict=True))) == len(found.rows)
    assert np.all(np.diff(found.violations) <= 0)


@pytest.mark.parametrize(
    "estimator",
    [
        LaSVC(**OPTIONS),
        LaSVC(**OPTIONS, epochs="converged", tol=1e-6),
        LaSVC(**OPTIONS, finish=False),
        pytest.param(GapSVC(**OPTIONS), marks=pytest.mark.slow),
        pytest.param(GapSVC(**OPTIONS, variant="i", warmup=5), marks=pytest.mark.slow),
        pytest.param(TrackingSVC(**OPTIONS), marks=pytest.mark.slow),
        pytest.param(TrackingSVC(**OPTIONS, average=False), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_certificate_says_what_is_written_out(estimator):
    X, y = blobs(60, d=4, shift=0.3)
    weights = np.random.default_rng(0).integers(0, 3, 60) / 2.0
    model = estimator.fit(X, y, sample_weight=weights)
    for worst in (0, 7, 100):
        found = model.certificate(X, y, weights, worst=worst)
        assert isinstance(found, Certificate)
        assert_says(found, *expected(model, X, y, 2.0 * weights), worst)
    assert model.duality_gap(X, y, weights) == (found.primal, found.dual, found.gap)


@pytest.mark.parametrize("shape", ["ovr", "ovo"])
@pytest.mark.parametrize("kind", [LaSVC, pytest.param(TrackingSVC, marks=pytest.mark.slow)])
def test_each_problem_of_several_classes_has_its_violation(kind, shape):
    X, y = three()
    model = kind(**OPTIONS, decision_function_shape=shape, class_weight={"a": 0.5, "b": 1.0, "c": 3.0}).fit(X, y)
    bound = 2.0 * np.array([0.5, 1.0, 3.0])[np.searchsorted(model.classes_, y)]
    found = model.certificate(X, y, worst=20)
    assert found.violation.shape == (3,)
    assert_says(found, *expected(model, X, y, bound, shape == "ovo"), 20)


def steepest(name, alpha, f, y, C):
    """The largest derivative of a machine's dual along a feasible direction of one row's variables."""
    others = [c for c in range(len(f)) if c != y]
    g = {c: 1 + f[c] if name == "llw" else 1 - (f[y] - f[c]) / 2 for c in others}
    rise = [g[c] for c in others if (sum(alpha) if name == "cs" else alpha[c]) < C * (1 - 1e-11)]
    held = [c for c in others if alpha[c] > 0]
    swaps = [g[c] - g[e] for c in others for e in held] if name == "cs" else []
    return max([0.0, *rise, *(-g[c] for c in held), *swaps]), g


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", ["ww", "cs", "llw"])
def test_a_machine_is_one_problem_of_all_classes(name, classes):
    X, y = three()
    X, y = X[y < "abcd"[classes]], y[y < "abcd"[classes]]
    n, codes = len(y), np.searchsorted(np.unique(y), y)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, n)
    model = MulticlassSVC(**OPTIONS, machine=name).fit(X, y, sample_weight=weights)
    K = kernel_matrix("rbf", X, X, GAMMA, 0.0, 0)
    alpha, beta = np.zeros((classes, n)), np.zeros((classes, n))
    alpha[:, model.support_] = model.alpha_
    for i in range(n):
        for c in range(classes):
            if name == "llw":
                beta[:, i] -= alpha[c, i] * (np.eye(classes)[c] - 1 / classes)
            else:
                beta[:, i] += alpha[c, i] * (np.eye(classes)[codes[i]] - np.eye(classes)[c]) / 2
    f = beta @ K
    half_norm = 0.5 * np.sum(beta * f)
    violations, losses = np.zeros((1, n)), np.zeros(n)
    for i in range(n):
        violations[0, i], g = steepest(name, alpha[:, i], f[:, i], codes[i], 2.0 * weights[i])
        lacking = [max(0.0, value) for value in g.values()]
        losses[i] = max(lacking) if name == "cs" else sum(lacking)
    found = model.certificate(X, y, weights)
    assert found.violation.shape == (1,)
    assert_says(found, half_norm + 2.0 * weights @ losses, alpha.sum() - half_norm, violations, 10)


@pytest.mark.slow
def test_a_loss_that_is_not_convex_has_no_certificate():
    X, y = blobs(200, shift=0.2)
    model = GapSVC(C=2.0, variant="nc", warmup=5, random_state=0).fit(X, y)
    for ask in (model.certificate, model.duality_gap):
        with pytest.raises(ValueError, match="variant='nc': the ramp loss is not convex"):
            ask(X, y)
    assert np.isfinite(model.dual_objective_)


@pytest.fixture(scope="module")
def truncated(tmp_path_factory):
    """A run that ended early, and its set in all forms."""
    X, y = blobs(700, shift=0.4)
    X[0], y[0] = X[y == 1].mean(axis=0), -1
    data = Dataset.create(tmp_path_factory.mktemp("d") / "d.zarr", X, y, chunk_rows=90, random_state=4)
    forms = {
        "NumPy": (X, y),
        "CSR": (sp.csr_matrix(X), y),
        "Dask array": (da.from_array(X, chunks=(130, 2)), da.from_array(y, chunks=200)),
        "Dask array of CSR": (da.from_array(X, chunks=(130, 5)).map_blocks(sp.csr_matrix), y),
        "Dataset": (data, None),
        "path": (data.path, None),
    }
    return forms, LaSVC(**OPTIONS, max_examples=150, finish=False)


@pytest.mark.parametrize("form", ["NumPy", "CSR", "Dask array", "Dask array of CSR", "Dataset", "path"])
def test_what_a_short_run_did_not_see_violates_whatever_the_rows_are_in(truncated, form):
    forms, estimator = truncated
    X, y = forms["NumPy"]
    model = estimator.fit(*forms[form])
    seen = np.isin(np.arange(700), model.support_)
    found = model.certificate(*forms[form], worst=25)
    assert_says(found, *expected(model, X, y, np.full(700, 2.0)), 25)
    assert len(found.rows) == 25
    assert np.count_nonzero(~seen[found.rows]) > 20
    assert found.violation[0] > 0.5
    alike = model.certificate(X, y, worst=25)
    assert np.array_equal(alike.rows, found.rows)
    assert alike.gap == pytest.approx(found.gap, rel=1e-10)


@pytest.mark.parametrize("form", ["Dask array", "Dataset"])
def test_a_cluster_says_the_same(truncated, form):
    forms, estimator = truncated
    model = estimator.fit(*forms["NumPy"])
    here = model.certificate(*forms[form])
    with cluster() as client:
        for asked in (client, None, client.scheduler.address):
            there = model.set_params(client=asked).certificate(*forms[form])
            assert np.array_equal(there.rows, here.rows)
            np.testing.assert_allclose(there.violations, here.violations, rtol=1e-10)
            assert (there.primal, there.dual) == pytest.approx((here.primal, here.dual), rel=1e-10)
        logs = client.run(lambda dask_worker: [str(entry[0]) for entry in dask_worker.state.log])
        tasks = {name for log in logs.values() for name in log if name.startswith("certify")}
        assert len(tasks) == 3 * (8 if form == "Dataset" else 6)
    model.set_params(client=None)


def test_the_model_is_one_key_of_the_graph(truncated, monkeypatch):
    forms, estimator = truncated
    model = estimator.fit(*forms["NumPy"])
    graphs, lazily = [], certificate._lazily

    def note(*arguments):
        graphs.append(lazily(*arguments))
        return graphs[-1]

    monkeypatch.setattr(certificate, "_lazily", note)
    for form, chunks in (("Dask array", 6), ("Dataset", 8)):
        model.certificate(*forms[form])
        keys = [str(key) for key in dict(graphs.pop().__dask_graph__())]
        assert sum("RowEvaluator" in key for key in keys) == 1
        assert sum("certify" in key for key in keys) == chunks


@pytest.fixture
def judged(monkeypatch):
    """Let blocks be judged by two threads at once, or not at all; tell a list of functions of each that was."""
    both, hinge, told = threading.Barrier(2, timeout=60), _base.hinge, []

    def together(*arguments):
        both.wait()
        found = hinge(*arguments)
        for tell in told:
            tell()
        return found

    monkeypatch.setattr(_base, "hinge", together)
    return told


def test_blocks_of_an_array_are_judged_side_by_side(judged):
    X, y = blobs(4000)
    model = LaSVC(C=2.0, max_examples=300, random_state=0).fit(X, y)
    with dask.config.set({"dasksvm.threads": 2}):
        assert model.certificate(X, y).gap > 0


def test_few_chunks_are_in_memory_at_a_time(judged):
    X, y = blobs(4000)
    model = LaSVC(C=2.0, max_examples=300, random_state=0).fit(X, y)
    alive, lock = [0], threading.Lock()

    def count(change):
        with lock:
            alive.append(alive[-1] + change)

    def make(block_info):
        ((start, stop), _) = block_info[None]["array-location"]
        count(1)
        return X[start:stop]

    lazy = da.map_blocks(make, chunks=((50,) * 80, (5,)), dtype=X.dtype, meta=np.empty((0, 0)))
    judged.append(lambda: count(-1))
    with dask.config.set(num_workers=2):
        found = model.certificate(lazy, y)
    # One is left: it was made to see whether the rows are sparse.
    assert alive[-1] == 1
    assert 2 <= max(alive) <= 6
    judged.clear()
    with dask.config.set({"dasksvm.threads": 2}):
        assert found.gap == pytest.approx(model.duality_gap(X, y)[2])


def test_blocks_of_wide_rows_are_small(monkeypatch):
    X, y = blobs(300)
    model = LaSVC(C=2.0, random_state=0).fit(X, y)
    whole = model.certificate(X, y)
    monkeypatch.setattr(certificate, "BLOCK_BYTES", 8 * 5 * 7)
    asked, names = [], set()
    ask = certificate.RowEvaluator.evaluate

    def note(self, X, *rest):
        asked.append(X.shape[0])
        names.add(threading.current_thread().name.rsplit("_", 1)[0])
        return ask(self, X, *rest)

    monkeypatch.setattr(certificate.RowEvaluator, "evaluate", note)
    found = model.certificate(X, y)
    assert max(asked) == 7
    assert names == {"dasksvm-certificate"}
    assert np.array_equal(found.rows, whole.rows)
    assert found.gap == pytest.approx(whole.gap, rel=1e-10)


def test_equal_violations_come_by_number():
    X, y = blobs(50)
    model = LaSVC(C=2.0, random_state=0).fit(X, y)
    others = np.repeat(X[:1] + 100.0, 30, axis=0)
    rows = np.concatenate([X, others])
    found = model.certificate(rows, np.concatenate([y, np.ones(30, int) * (1 if model.intercept_[0] < 0 else -1)]))
    assert found.rows.tolist() == list(range(50, 60))


def test_empty_chunks_count_for_nothing_and_bad_arguments_are_named():
    X, y = blobs(80)
    model = LaSVC(C=2.0, random_state=0).fit(X, y)
    lazy = da.concatenate([da.zeros((0, 5)), da.from_array(X[:50]), da.zeros((0, 5)), da.from_array(X[50:])])
    assert model.duality_gap(lazy, y) == pytest.approx(model.duality_gap(X, y))
    with pytest.raises(ValueError, match="worst"):
        model.certificate(X, y, worst=-1)
    with pytest.raises(TypeError):
        model.certificate(X, y, worst=1.5)
    with pytest.raises(ValueError, match="0 sample"):
        model.certificate(da.zeros((0, 5)), y[:0])
    with pytest.raises(NotFittedError):
        LaSVC().certificate(X, y)
