"""The tracking algorithms compared with transcriptions of paper 3, its lemma and theorems, and an independent optimum."""

import dask.array as da
import dask.config
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils.estimator_checks import parametrize_with_checks

from dasksvm import ActiveLearner, Dataset, HeldOut, TrackingSVC, train
from dasksvm.solver.engine import learner_state
from dasksvm.solver.engine.learners import make_learner
from dasksvm.solver.engine.selection import RandomOrder, Selection
from dasksvm.solver.generator import draw, seeded
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.unbiased.batch_ascent import AscentSettings
from dasksvm.solver.unbiased.tracking_learner import TrackingSettings
from dasksvm.solver.unbiased.tracking_steps import TrackingRules
from tests.clusters import cluster, digest, history, noisy
from tests.helpers import CHOOSING_CRITERIA, DEFINITE_KERNELS, Rows, blobs, coefficients, kernel_matrix, run

# Compilation alone takes half a minute with an empty cache.
pytestmark = pytest.mark.slow
NEVER, SEED = 1 << 60, 7
KERNEL = Kernel("rbf", 0.3)
RULES = {
    "one": TrackingRules(5, False, False, True),
    "two": TrackingRules(5, True, False, True),
    "support": TrackingRules(5, True, True, True),
    "batch": 5,  # the steps of batch ascent
}
EXPECTED = {
    f"check_sample_weight_equivalence_on_{kind}_data": "one pass is not the optimum; scikit-learn excuses its SVC and SGD"
    for kind in ("dense", "sparse")
}
every_algorithm = pytest.mark.parametrize("name", ["one", "two", "support"])


@parametrize_with_checks([TrackingSVC(random_state=0)], expected_failed_checks=lambda estimator: EXPECTED)
def test_scikit_learn_compatible(estimator, check):
    check(estimator)


def learner_for(
    rows,
    rules,
    *,
    kernel=KERNEL,
    lookahead=8,
    filter=True,
    cache_bytes=50 << 20,
    epochs=1,
    max_support=NEVER,
    **options,
):
    unlimited = {"max_examples": NEVER, "selection": Selection()} | options
    common = dict(
        kernel=kernel,
        max_support=max_support,
        problems=1,
        epochs=epochs,
        cache_bytes=cache_bytes,
        inflight_bytes=50 << 20,
        lookahead=lookahead,
        filter=filter,
        seed=SEED,
        **unlimited,
    )
    made = AscentSettings(steps=rules, **common) if isinstance(rules, int) else TrackingSettings(rules=rules, **common)
    learner = make_learner(made)
    learner.feed(RandomOrder((len(rows.sign),), 3), np.zeros(0, np.int64))
    return learner


class Literal:
    """Algorithms 1 and 2 as printed in paper 3, with its signs: 0 ≤ α ≤ C."""

    def __init__(self, X, y, C, rules, seed=SEED):
        self.K, self.y, self.C, self.rules = kernel_matrix("rbf", X, X, 0.3, 0, 0), y, C, rules
        self.random = seeded(seed)
        self.alpha, self.mean = np.zeros(len(y)), np.zeros(len(y))
        self.gaps, self.before, self.gained = [], [], 0.0

    def g(self, i):
        return 1 - self.y[i] * ((self.alpha * self.y) @ self.K[:, i])

    def step(self, i):
        a, g = self.alpha[i], self.g(i)
        to = a + max(-a, min(self.C[i] - a, g / self.K[i, i]))
        slack = 1e-12 * self.C[i]
        to = 0.0 if to <= slack else self.C[i] if to >= self.C[i] - slack else to
        self.alpha[i] = to
        return (to - a) * g - 0.5 * (to - a) ** 2 * self.K[i, i]

    def gap(self, seen):
        """Primal minus dual of the examples seen, divided by Σ C."""
        s = seen[self.alpha[seen] != 0] if self.rules.support else seen
        s = np.union1d(s, np.array(self.left, int)) if self.rules.support else s
        w = self.alpha[s] * self.y[s]
        norm = w @ self.K[np.ix_(s, s)] @ w
        losses = np.maximum(0, 1 - self.y[s] * (self.K[np.ix_(s, s)] @ w))
        boxes = self.C[s].sum()
        return (norm + self.C[s] @ losses - self.alpha[s].sum()) / boxes if boxes else 0.0

    def learn(self, order):
        K = self.rules.steps
        for t, new in enumerate(order, 1):
            self.alpha[new], self.left, seen = 0.0, [], order[:t]
            if self.rules.process:
                self.gained += self.step(new)
            mean = np.zeros(len(self.y))
            for k in range(1, K + 1):
                i = order[int(draw(self.random) * t)]
                self.before.append(self.gap(seen))
                if not self.rules.support or self.alpha[i] != 0:
                    self.step(i)
                    self.left += [i] if self.alpha[i] == 0 and self.rules.support else []
                mean = ((k - 1) * mean + self.alpha) / k
            self.mean = mean
            self.gaps.append(self.gap(seen))
        return self


@every_algorithm
@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize(("lookahead", "drop", "cache"), [(1, False, 50 << 20), (8, True, 50 << 20), (8, True, 1)])
def test_iterations_equal_the_paper_step_by_step(name, average, lookahead, drop, cache):
    X, y = blobs(500, d=3, seed=4, shift=0.4)
    C = np.random.default_rng(0).uniform(1.0, 3.0, 500)
    rules, rows = RULES[name]._replace(average=average), Rows(X, y, C)
    learner = run(learner_for(rows, rules, lookahead=lookahead, filter=drop, cache_bytes=cache), rows)
    literal = Literal(X, y, C, rules).learn(RandomOrder((500,), 3).rows(0, 0, 500))
    alpha = learner.expansion.working.alpha[0, : learner.expansion.places]
    np.testing.assert_allclose(np.sort(alpha[alpha != 0]), np.sort((y * literal.alpha)[literal.alpha != 0]), atol=1e-8)
    np.testing.assert_allclose(coefficients(learner, 500), y * (literal.mean if average else literal.alpha), atol=1e-8)
    progress = learner.progress()
    assert progress.delta[0] == pytest.approx(literal.gaps[-1], abs=1e-8)
    assert progress.more["mean_gap"][0] == pytest.approx(np.mean(literal.gaps), abs=1e-8)
    assert learner.expansion.tracking.status[0, 4] == pytest.approx(literal.gained, abs=1e-8)
    assert np.any(literal.mean != literal.alpha)
    assert "bound" not in progress.more
    learner.expansion.check(1e-8)


def mu(x, C):
    return np.sqrt(2 * x) + x / C


@given(seed=st.integers(0, 10_000), C=st.floats(0.01, 100.0), count=st.integers(1, 30), share=st.floats(0.0, 1.0))
@settings(max_examples=200)
def test_lemma_1(seed, C, count, share):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 4))
    X *= (rng.random(count) / np.linalg.norm(X, axis=1))[:, None]
    y, alpha = rng.choice([-1, 1], count), C * rng.random(count)
    alpha[rng.random(count) < share] = rng.choice([0.0, C])
    w = (alpha * y) @ X
    g = 1 - y * (X @ w)
    gap = w @ w + C * np.maximum(0, g).sum() - alpha.sum()
    assert gap == pytest.approx(np.maximum((C - alpha) * g, -alpha * g).sum(), abs=1e-8 * (1 + C * count))
    step = np.clip(g / (X**2).sum(axis=1), -alpha, C - alpha)
    gain = step * g - 0.5 * step**2 * (X**2).sum(axis=1)
    assert gap / (C * count) <= mu(gain.mean(), C) * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("name", ["one", "two"])
def test_theorems_2_and_3(name):
    X, y = blobs(250, d=3, seed=4, shift=0.4)
    C, order = np.full(250, 2.0), RandomOrder((250,), 3).rows(0, 0, 250)
    gaps, gains = [], []
    for seed in range(5):
        literal = Literal(X, y, C, RULES[name], seed).learn(order)
        w = literal.alpha * y
        gains.append((literal.alpha.sum() - 0.5 * w @ literal.K @ w - literal.gained) / len(literal.before))
        gaps.append(np.mean(literal.before))
    assert np.mean(gaps) < mu(np.mean(gains), 2.0)
    rows = Rows(X, y, C)
    progress = run(learner_for(rows, RULES[name]), rows).progress()
    literal = Literal(X, y, C, RULES[name]).learn(order)
    w = literal.alpha * y
    gain = (literal.alpha.sum() - 0.5 * w @ literal.K @ w - literal.gained) / len(literal.before)
    assert progress.more["bound"][0] == pytest.approx(mu(gain, 2.0), rel=1e-8)
    assert 0 < progress.more["mean_gap"][0] < progress.more["bound"][0]


@every_algorithm
@given(
    seed=st.integers(0, 1000), C=st.floats(0.05, 20.0), cache=st.sampled_from([1, 50 << 20]), epochs=st.integers(1, 2)
)
@settings(max_examples=15)
def test_every_state_satisfies_the_invariants(name, seed, C, cache, epochs):
    X, y = blobs(250, d=3, seed=seed, shift=0.4)
    rows = Rows(X, y, np.full(250, C))
    learner = learner_for(rows, RULES[name], cache_bytes=cache, epochs=epochs)
    s, duals = learner.expansion, []

    def watch(progress, seconds):
        s.check(1e-8)
        w = s.working
        live = np.flatnonzero(w.member[0, : s.places])
        assert np.array_equal(s.place_of[s.number_of[s.example[live]]], live)
        assert np.count_nonzero(s.place_of >= 0) == len(live)
        assert len(live) == learner.seen or name == "support" or epochs == 2
        assert name != "support" or w.counts[0, 1] <= RULES[name].steps
        duals.append(float(progress.dual[0]))
        return False

    run(learner, rows, watch=watch)
    assert list(s.arrived) == [250 * epochs, 250]
    assert np.all(np.diff(duals) >= -1e-9 * np.abs(duals[-1]))


@pytest.mark.parametrize("name", list(RULES))
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_a_run_continues_from_a_snapshot_bitwise(name, share):
    X, y = blobs(500, shift=0.4)
    rows = Rows(X, y, np.full(500, 2.0))
    whole = run(learner_for(rows, RULES[name], cache_bytes=200_000), rows)
    first, taken, count = learner_for(rows, RULES[name], cache_bytes=200_000), [], []
    run(learner_for(rows, RULES[name], cache_bytes=200_000), rows, watch=lambda *_: count.append(0))

    def watch(progress, seconds):
        taken.append(learner_state.state(first))
        return False

    run(first, rows, watch=watch)
    second = run(learner_state.restore(first.settings, taken[int(share * len(taken))]), rows)
    np.testing.assert_array_equal(coefficients(second, 500), coefficients(whole, 500))
    assert second.progress().as_dict() == whole.progress().as_dict()


@pytest.mark.parametrize("name", DEFINITE_KERNELS)
def test_batch_ascent_reaches_the_exact_svm_without_bias(name):
    X, y = blobs(80, seed=3)
    bound = np.random.default_rng(1).uniform(0.5, 3.0, 80)
    rows, rules = Rows(X, y, bound), 20000
    learner = run(learner_for(rows, rules, kernel=Kernel(name, 0.3, 0.5, 2)), rows)
    K = kernel_matrix(name, X, X, 0.3, 0.5, 2)
    result = scipy.optimize.minimize(
        lambda a: 0.5 * a @ K @ a - a @ y,
        np.zeros(80),
        jac=lambda a: K @ a - y,
        bounds=list(zip(np.minimum(0, bound * y), np.maximum(0, bound * y), strict=True)),
        method="L-BFGS-B",
        options={"maxiter": 50000, "maxfun": 500000, "ftol": 1e-16, "gtol": 1e-10},
    )
    assert learner.progress().dual[0] == pytest.approx(-result.fun, rel=1e-6)
    alpha = coefficients(learner, 80)
    assert alpha @ y - 0.5 * alpha @ K @ alpha == pytest.approx(learner.progress().dual[0])
    assert 0 <= learner.progress().delta[0] < 1e-4


def test_batch_ascent_makes_the_picks_of_the_paper_and_computes_only_their_rows():
    X, y = blobs(300, seed=3)
    for cache in (1, 50 << 20):
        rows = Rows(X, y, np.full(300, 2.0))
        learner = run(learner_for(rows, RULES["batch"], cache_bytes=cache), rows)
        order, K = RandomOrder((300,), 3).rows(0, 0, 300), kernel_matrix("rbf", X, X, 0.3, 0, 0)
        alpha, random, moved = np.zeros(300), seeded(SEED), set()
        for _ in range(5 * 300):
            i = order[int(draw(random) * 300)]
            to = np.clip(alpha[i] + y[i] - K[i] @ alpha, min(0, 2 * y[i]), max(0, 2 * y[i]))
            moved |= {i} if abs(to - alpha[i]) > 1e-12 else set()
            alpha[i] = to
        np.testing.assert_allclose(coefficients(learner, 300), alpha, atol=1e-8)
        assert learner.evaluations >= len(moved) * 300
    assert learner.evaluations <= 1.3 * len(moved) * 300


def solver(**options):
    return TrackingSVC(**({"C": 2.0, "gamma": 0.1, "random_state": 0, "dtype": "float64"} | options))


def three_classes(count=600):
    X, y = blobs(count, seed=2, shift=0.5)
    return X, np.where(X[:, 0] > 1, 2, np.where(y > 0, 1, 0))


@pytest.mark.parametrize("gradients", ["all", "support"])
def test_one_vs_rest_equals_separate_fits(gradients):
    X, y = three_classes()
    together = solver(gradients=gradients).fit(X, y)
    assert len(together.history_[-1]["gap"]) == 3
    for label in range(3):
        alone = solver(gradients=gradients).fit(X, y == label)
        np.testing.assert_allclose(together.decision_function(X)[:, label], alone.decision_function(X), atol=1e-9)
        assert together.history_[-1]["mean_gap"][label] == pytest.approx(alone.history_[-1]["mean_gap"])


@pytest.mark.parametrize("options", [{}, {"gradients": "all", "process": False}, {"solver": "batch"}])
def test_threads_a_small_cache_and_the_form_of_the_rows_change_little(options, tmp_path):
    X, y = three_classes(900)
    with dask.config.set({"dasksvm.threads": 1}):
        alone = solver(dtype="float32", **options).fit(X, y)
    with dask.config.set({"dasksvm.threads": 2}):
        assert digest(solver(dtype="float32", **options).fit(X, y)) == digest(alone)
    expected = solver(**options).fit(X, y)
    small = solver(cache_size=0.01, **options).fit(X, y)
    np.testing.assert_allclose(small.decision_function(X), expected.decision_function(X), atol=1e-6)
    sparse = solver(**options).fit(sp.csr_matrix(X), y)
    np.testing.assert_allclose(sparse.decision_function(X), expected.decision_function(X), atol=1e-6)
    chunked = solver(**options).fit(da.from_array(X, chunks=(300, 5)), y)
    assert chunked.score(X, y) > expected.score(X, y) - 0.03
    stored = solver(**options).fit(Dataset.create(tmp_path / "rows", X, y, chunk_rows=200, random_state=0))
    assert stored.score(X, y) > expected.score(X, y) - 0.03


def test_streams_weights_and_looks():
    X, y = three_classes(900)
    for options in ({}, {"gradients": "all"}, {"solver": "batch"}):
        stream = solver(**options)
        for start in range(0, 900, 300):
            stream.partial_fit(X[start : start + 300], y[start : start + 300], classes=[0, 1, 2])
        whole = solver(**options).fit(X, y)
        assert stream.score(X, y) > whole.score(X, y) - 0.02
        watched = HeldOut(X, y, every=200)
        model = train((X, y), solver(**options), callbacks=[watched]).estimator
        assert digest(model) == digest(whole)
        assert len(watched.entries) >= 3
        assert watched.entries[-1]["error"] < 0.25
        assert solver(class_weight={0: 1.0, 1: 0.0, 2: 3.0}, **options).fit(X, y).n_support_[1] == 0
        pairs = solver(decision_function_shape="ovo", **options).fit(X, y)
        assert pairs.score(X, y) > whole.score(X, y) - 0.03
    weights = np.random.default_rng(0).integers(0, 3, 900).astype(float)
    model = solver(gradients="all", steps=100).fit(X, y > 0, sample_weight=weights)
    primal, _, gap = model.duality_gap(X, y > 0, weights)
    assert 0 < gap < 0.1 * primal
    assert "bound" not in model.history_[-1]


def test_budgets_choices_and_refusals():
    X, y = blobs(1500, shift=0.5)
    rows = Rows(X, y, np.full(1500, 2.0))
    assert len(run(learner_for(rows, RULES["support"], max_support=40), rows).solution()[2]) >= 40
    for name in ("one", "support"):
        for criterion in CHOOSING_CRITERIA:
            how = Selection(criterion, 20)
            chosen = run(learner_for(rows, RULES[name], selection=how, max_examples=150), rows)
            chosen.expansion.check(1e-8)
            assert chosen.seen == 150
            assert chosen.next_sequence < 150
    with pytest.raises(ValueError, match="process=True"):
        solver(process=False).fit(X, y)
    with pytest.raises(ValueError, match="'online' only"):
        solver(solver="batch", selection="active").fit(X, y)
    for options in ({}, {"gradients": "all"}):
        learner = ActiveLearner(solver(**options), X)
        while len(learner.ids) < 60:
            ids = learner.query(10)
            learner.teach(ids, y[ids])
        assert learner.score(X, y) > 0.7


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gradients": "all", "process": False},
        {"solver": "batch"},
        {"selection": "active", "candidates": 10, "max_examples": 300},
    ],
)
def test_clusters_give_the_local_model(tmp_path, options):
    data = noisy(tmp_path / "data.zarr", rows=1500, width=8)
    expected = TrackingSVC(C=3, random_state=0, **options).fit(data)
    for workers in (1, 2):
        with cluster(workers) as client:
            model = TrackingSVC(C=3, random_state=0, client=client, **options).fit(data)
            assert digest(model) == digest(expected)
            assert history(model) == history(expected)
