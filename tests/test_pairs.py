"""The two-variable solver compared with an independent optimum, the paper's counter-example, and brute-force pair searches."""

import warnings

import dask.config
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from dasksvm import SMOSVC, LaSVC
from dasksvm.solver.decomposition import pair_solver
from dasksvm.solver.decomposition.block_pairs import solve_by_pairs
from dasksvm.solver.decomposition.pair_state import CONVERGED
from dasksvm.solver.decomposition.rules import CORNER, SELECTIONS, PairRules
from dasksvm.solver.decomposition.starting_point import StartingPoint
from dasksvm.solver.engine import learner_state
from dasksvm.solver.engine.learners import make_learner
from dasksvm.solver.engine.selection import RandomOrder
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.messages import RowsPlan
from dasksvm.solver.state import row_cache
from tests.clusters import digest
from tests.helpers import Rows, blobs, coefficients, decomposing, dual_of, exact_dual, kernel_matrix, run, violation_of

NEVER = 1 << 60
RBF = Kernel("rbf", 0.3)
every_selection = pytest.mark.parametrize("selection", SELECTIONS)


def learner_for(
    rows, selection="hmg", *, stop="kkt", shrinking=True, kernel=RBF, tau=1e-3, limit=NEVER, searched=2, seed=7,
    cache_bytes=50 << 20,
):  # fmt: skip
    rules = PairRules(selection, stop, shrinking, limit, searched)
    made = decomposing(kernel, rules, tol=tau, cache_bytes=cache_bytes, seed=seed)
    learner = make_learner(made)
    learner.feed(RandomOrder((len(rows.sign),), 3), np.zeros(0, np.int64))
    return learner


def solved(X, y, C, selection="hmg", *, kernel=RBF, **options):
    rows = Rows(X, y, np.broadcast_to(np.asarray(C, np.float64), len(y)))
    return run(learner_for(rows, selection, kernel=kernel, **options), rows)


def matrix(kernel, X):
    return kernel_matrix(kernel.name, X, X, kernel.gamma, kernel.coef0, kernel.degree)


def small_problem(seed):
    rng = np.random.default_rng(seed)
    X, y = blobs(int(rng.integers(12, 41)), d=3, seed=seed, shift=0.4)
    C = np.full(len(y), rng.choice([0.3, 2.0, 20.0]))
    if seed % 3 == 1:
        C *= np.where(y > 0, 3.0, 0.5)
    if seed % 3 == 2:
        C *= rng.uniform(0.2, 2.0, len(y))
    return X, y, C, RBF if seed % 2 else Kernel("linear")


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 20))])
def test_small_problems_end_at_the_optimum(seed):
    X, y, C, kernel = small_problem(seed)
    K = matrix(kernel, X)
    best = exact_dual(K, y, C)
    for selection in ("mvp", "second-order", "hmg"):
        learner = solved(X, y, C, selection, kernel=kernel, tau=1e-8)
        now = learner.finishing[0]
        alpha = coefficients(learner, len(y))
        assert learner.converged
        assert not learner.stuck
        assert dual_of(K, y, alpha) == pytest.approx(best, abs=1e-6)
        assert now.dual == pytest.approx(best, abs=1e-6)
        assert violation_of(K, y, C, alpha) <= 1e-7
        order = learner.expansion.example[: len(y)]
        np.testing.assert_allclose(now.g, (y - K @ alpha)[order], atol=1e-9)
        assert learner.progress().steps == now.steps


# The counter-example of paper 4, theorem 7: K = Q ∘ yy', factored into features of the linear kernel.
Q = np.array([[2, 3**0.5, 1, 3**0.5], [3**0.5, 4, 3**0.5, 3], [1, 3**0.5, 2, 3**0.5], [3**0.5, 3, 3**0.5, 4]])
SIGNS = np.array([-1, -1, 1, 1])
FEATURES = np.linalg.cholesky(Q * np.outer(SIGNS, SIGNS))


def seed_of_the_paper():
    """A seed whose first pair is {1, 3}."""
    rows = Rows(FEATURES, SIGNS, np.full(4, 0.1))
    for seed in range(100):
        learner = run(learner_for(rows, kernel=Kernel("linear"), seed=seed, limit=1), rows)
        if set(np.flatnonzero(coefficients(learner, 4))) == {0, 2}:
            return seed
    raise AssertionError


@pytest.mark.parametrize("shrinking", [False, True])
def test_maximum_gain_alone_gets_stuck_as_in_theorem_7(shrinking):
    seed, options = seed_of_the_paper(), {"kernel": Kernel("linear"), "shrinking": shrinking, "tau": 1e-6}
    K = FEATURES @ FEATURES.T
    stuck = solved(FEATURES, SIGNS, 0.1, "mg", seed=seed, **options)
    np.testing.assert_allclose(SIGNS * coefficients(stuck, 4), [0.1, 0, 0.1, 0], atol=1e-12)
    assert stuck.stuck
    assert stuck.finishing[0].stuck
    assert not stuck.converged
    assert stuck.progress().steps == 1
    best = exact_dual(K, SIGNS, np.full(4, 0.1))
    for selection in ("hmg", "mvp", "second-order"):
        learner = solved(FEATURES, SIGNS, 0.1, selection, seed=seed, **options)
        assert learner.converged
        assert learner.progress().dual[0] == pytest.approx(best, abs=1e-9)
    assert best > stuck.progress().dual[0] + 1e-3
    by_gain = solved(FEATURES, SIGNS, 0.1, "mg", seed=seed, stop="gain", **options)
    assert by_gain.finishing[0].stop_reason == CONVERGED
    assert by_gain.progress().delta[0] > 0.1
    assert not by_gain.converged
    assert by_gain.violation[0] == pytest.approx(by_gain.progress().delta[0] / 2)


def test_the_estimator_warns_that_maximum_gain_is_stuck():
    found = set()
    for seed in range(12):
        model = SMOSVC(0.1, "linear", working_set="mg", working_set_size=2, dtype="float64", random_state=seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(FEATURES, SIGNS)
        sticks = len(model.support_) == 2 and set(model.support_) == {0, 2}
        assert [each.category for each in caught] == [ConvergenceWarning] * sticks
        assert not sticks or "stuck" in str(caught[0].message)
        found.add(sticks)
    assert found == {False, True}


class Literal:
    """The choices of the paper in a given state, computed from the whole matrix; rounding may decide between ties."""

    def __init__(self, K, y, C, alpha):
        self.K, self.alpha, self.C = K, alpha, C
        self.lower, self.upper, self.g = np.minimum(0, C * y), np.maximum(0, C * y), y - K @ alpha
        self.top = self.g[alpha < self.upper].max()
        self.bottom = self.g[alpha > self.lower].min()

    def step(self, i, j):
        """Length and gain (paper 4, equation 3) of a pair that may move in either direction."""
        i, j = (i, j) if self.g[i] > self.g[j] else (j, i)
        curvature = max(self.K[i, i] + self.K[j, j] - 2 * self.K[i, j], 1e-12)
        free = (self.g[i] - self.g[j]) / curvature
        length = min(free, self.upper[i] - self.alpha[i], self.alpha[j] - self.lower[j])
        return length, 0.5 * curvature * length * (2 * free - length)

    def cornered(self, pair):
        near = np.minimum(self.alpha - self.lower, self.upper - self.alpha) <= CORNER * self.C
        return all(near[list(pair)])

    def most_gain(self, searched):
        return max(
            (self.step(s, b) for s in searched for b in range(len(self.g)) if b != s), key=lambda found: found[1]
        )

    def check(self, selection, searched, i, j):
        """Check that the pair that was chosen is one the paper would choose, up to rounding."""
        greedy = searched is not None
        if greedy and self.most_gain(searched)[1] > 1e-14:
            assert i in searched or j in searched
            assert self.step(i, j)[1] >= self.most_gain(searched)[1] * (1 - 1e-6)
            return
        assert selection != "mg"
        assert self.g[i] >= self.top - 1e-9
        if selection != "second-order":
            assert self.g[j] <= self.bottom + 1e-9
            return
        curvature = np.maximum(self.K[i, i] + np.diag(self.K) - 2 * self.K[i], 1e-12)
        gains = np.where((self.alpha > self.lower) & (self.g < self.g[i]), (self.g[i] - self.g) ** 2 / curvature, 0)
        assert gains[j] >= gains.max() * (1 - 1e-5)


@pytest.mark.parametrize("stop", ["kkt", "gain"])
@pytest.mark.parametrize(
    ("selection", "rows_searched"), [(each, 2) for each in SELECTIONS] + [("hmg", 1), ("hmg", 0), ("mg", 1)]
)
def test_steps_are_those_of_the_paper(selection, rows_searched, stop, monkeypatch):
    monkeypatch.setattr(pair_solver, "AT_ONCE", 1)
    corners = 0
    for seed in (1, 3, 5, 9):
        X, y, C, kernel = small_problem(seed)
        rows, K, tau, alphas = Rows(X, y, C), matrix(kernel, X), 1e-3, []
        learner = learner_for(
            rows, selection, kernel=kernel, stop=stop, shrinking=False, searched=rows_searched, tau=tau
        )

        def watch(progress, seconds, learner=learner, alphas=alphas, y=y):
            if learner.finishing and progress.steps == len(alphas) + 1:
                alphas.append(coefficients(learner, len(y)))
            return False

        run(learner, rows, watch=watch)
        assert len(alphas) == learner.progress().steps
        before, pair, used = np.zeros(len(y)), None, set()
        for alpha in [*alphas, None]:
            now = Literal(K, y, C, before)
            searched = None
            if pair is not None and (selection == "mg" or (selection == "hmg" and not now.cornered(pair))):
                searched = {2: pair, 1: pair[1:], 0: tuple(sorted(used))}[rows_searched]
            corners += pair is not None and selection == "hmg" and searched is None
            by_gain = stop == "gain" and searched is not None
            if alpha is None:
                ended = now.most_gain(searched)[0] < tau * (1 + 1e-9) if by_gain else now.top - now.bottom <= tau
                assert ended == (learner.finishing[0].stop_reason == CONVERGED)
                assert learner.converged == ((now.top - now.bottom) / 2 <= tau)
                break
            assert by_gain or pair is None or now.top - now.bottom > tau
            (i,), (j,) = np.flatnonzero(alpha > before), np.flatnonzero(alpha < before)
            if pair is None:
                assert y[i] == 1 != y[j]
                pair = i, j
            else:
                now.check(selection, searched, i, j)
                kept = {i, j} & set(searched or ())
                pair = (j, i) if kept == {j} else (i, j)
                if kept == {i, j}:
                    break
            used |= {i, j}
            assert now.step(i, j)[0] == pytest.approx(alpha[i] - before[i], abs=1e-9)
            before = alpha
    assert corners > 0 or selection != "hmg"


@every_selection
def test_all_selections_begin_with_the_same_pair_and_another_seed_with_another(selection):
    X, y = blobs(60, seed=3)
    firsts = [coefficients(solved(X, y, 2.0, each, limit=1), 60) for each in (selection, "mvp")]
    np.testing.assert_array_equal(*firsts)
    assert not np.array_equal(firsts[0], coefficients(solved(X, y, 2.0, selection, limit=1, seed=8), 60))


@every_selection
@pytest.mark.parametrize("rows_kept", [2, pytest.param(4, marks=pytest.mark.slow), 1000])
def test_shrinking_and_tiny_caches_do_not_change_the_optimum(selection, rows_kept, monkeypatch):
    monkeypatch.setattr(pair_solver, "SHRINK_STEPS", 40)
    # There are pages for two blocks of places, of which one is in use.
    monkeypatch.setattr(row_cache, "LEAST_ROWS", min(rows_kept // 2, 16))
    X, y = blobs(150, d=3, seed=5, shift=0.4)
    bytes_kept = 1 if rows_kept < 1000 else 50 << 20
    K, found = matrix(RBF, X), []
    for shrinking in (False, True):
        learner = solved(X, y, 2.0, selection, tau=1e-9, shrinking=shrinking, cache_bytes=bytes_kept)
        now = learner.finishing[0]
        assert learner.converged
        assert len(now.active) == 150
        assert len(learner.expansion.cache.pages) == rows_kept or rows_kept == 1000
        alpha = coefficients(learner, 150)
        order = learner.expansion.example[:150]
        np.testing.assert_allclose(now.g, (y - K @ alpha)[order], atol=1e-10)
        assert violation_of(K, y, 2.0, alpha) <= 2e-9
        found.append(alpha)
    np.testing.assert_allclose(*found, atol=1e-8)


def most_groups_left_out(learner, rows):
    """Run a learner; return the largest number of groups of members that shrinking had left out at the same time."""
    groups = []

    def watch(progress, seconds):
        groups.extend(len(now.alpha_before) for now in learner.finishing)
        return False

    run(learner, rows, watch=watch)
    return max(groups)


def test_members_left_out_by_shrinking_get_exact_gradients_again(monkeypatch):
    monkeypatch.setattr(pair_solver, "SHRINK_STEPS", 30)
    X, y = blobs(1300, d=3, seed=5, shift=0.3)
    rows = Rows(X, y, np.full(1300, 1.0))
    learner = learner_for(rows, tau=1e-5, cache_bytes=1 << 20)
    assert most_groups_left_out(learner, rows) > 2
    now = learner.finishing[0]
    assert now.unshrunk
    np.testing.assert_allclose(now.g, learner.expansion.exact_gradients(0, now.alpha), atol=1e-10)
    whole = run(learner_for(rows, tau=1e-5, shrinking=False, cache_bytes=1 << 20), rows)
    assert now.dual == pytest.approx(whole.progress().dual[0], rel=1e-9)
    assert now.computed * 1300 < whole.evaluations
    assert learner.expansion.cache.cached.any()
    learner.expansion._check_rows(1e-10)


@given(
    seed=st.integers(0, 1000), C=st.floats(0.05, 20.0), selection=st.sampled_from(SELECTIONS),
    stop=st.sampled_from(["kkt", "gain"]), shrinking=st.booleans(), kept=st.sampled_from([1, 50 << 20]),
)  # fmt: skip
@settings(max_examples=15)
def test_every_state_satisfies_the_invariants(seed, C, selection, stop, shrinking, kept):
    X, y = blobs(60, d=3, seed=seed, shift=0.4)
    rows, K, duals = Rows(X, y, np.full(60, C)), matrix(RBF, X), []
    learner = learner_for(rows, selection, stop=stop, shrinking=shrinking, cache_bytes=kept)

    def watch(progress, seconds):
        for now in learner.finishing:
            order = learner.expansion.example[:60]
            alpha, g = now.alpha, now.g
            assert np.all((now.lower <= alpha) & (alpha <= now.upper))
            assert abs(alpha.sum()) <= 1e-9 * C * 60
            exact = y[order] - K[np.ix_(order, order)] @ alpha
            np.testing.assert_allclose(g[now.active], exact[now.active], atol=1e-9 * (1 + C))
            assert progress.dual[0] == pytest.approx(dual_of(K[np.ix_(order, order)], y[order], alpha), rel=1e-9)
            duals.append(now.dual)
        return False

    run(learner, rows, watch=watch)
    assert np.all(np.diff(duals) >= -1e-12 * np.abs(duals[-1]))
    alpha, bias = coefficients(learner, 60), learner.extremes[0].mean()
    g = y - K @ alpha - bias
    violation = max(g[alpha < np.maximum(0, C * y)].max(), -g[alpha > np.minimum(0, C * y)].min(), 0.0)
    assert learner.violation[0] == pytest.approx(violation, abs=1e-9)
    assert learner.converged == (learner.violation[0] <= 1e-3)
    assert learner.converged or selection == "mg" or stop == "gain"


@every_selection
@pytest.mark.parametrize(
    "share", [pytest.param(0.3, marks=pytest.mark.slow), 0.7, pytest.param(0.95, marks=pytest.mark.slow)]
)
def test_a_run_continues_from_a_snapshot_bitwise(selection, share, monkeypatch):
    monkeypatch.setattr(pair_solver, "SHRINK_STEPS", 25)
    X, y = blobs(300, shift=0.3)
    rows, options = Rows(X, y, np.full(300, 2.0)), {"cache_bytes": 300_000, "tau": 1e-4}
    whole = run(learner_for(rows, selection, **options), rows)
    first, taken, steps = learner_for(rows, selection, **options), [], whole.progress().steps

    def watch(progress, seconds):
        if progress.steps >= share * steps and not taken:
            taken.append(learner_state.state(first))
        return False

    run(first, rows, watch=watch)
    second = run(learner_state.restore(first.settings, taken[0]), rows)
    np.testing.assert_array_equal(coefficients(second, 300), coefficients(whole, 300))
    assert second.progress().as_dict() == whole.progress().as_dict()
    assert second.converged == whole.converged


def test_steps_return_regularly_even_if_no_row_is_missing(monkeypatch):
    monkeypatch.setattr(pair_solver, "AT_ONCE", 1e3)
    X, y = blobs(100, shift=0.3)
    rows = Rows(X, y, np.full(100, 20.0))
    learner, steps = learner_for(rows, "mvp", tau=1e-6, shrinking=False), []

    def watch(progress, seconds):
        steps.append(progress.steps)
        return progress.steps > 400

    run(learner, rows, watch=watch)
    assert max(np.diff(steps)) <= 10
    assert 400 < steps[-1] < 420
    assert learner.stopped
    assert not learner.converged
    assert len(learner.pending()) == 0


def solver(**options):
    made = {"C": 2.0, "gamma": 0.3, "random_state": 0, "dtype": "float64", "working_set_size": 2, "working_set": "hmg"}
    return SMOSVC(**(made | options))


def test_the_number_of_steps_is_limited():
    X, y = blobs(100)
    with pytest.warns(ConvergenceWarning, match="max_iter=7"):
        model = solver(max_iter=7).fit(X, y)
    assert model.n_iter_ == 7
    assert solver(max_iter=7, tol=10.0).fit(X, y).n_iter_ == 0


@pytest.mark.parametrize("shape", ["ovr", "ovo"])
def test_several_classes_equal_separate_fits(shape):
    X, y = blobs(240, seed=2, shift=0.5)
    y = np.where(X[:, 0] > 1, 2, np.where(y > 0, 1, 0))
    together = solver(tol=1e-8, decision_function_shape=shape).fit(X, y)
    assert len(together.history_[-1]["delta"]) == 3
    if shape == "ovo":
        exact = SVC(C=2.0, gamma=0.3, tol=1e-8, decision_function_shape="ovo").fit(X, y)
        np.testing.assert_array_equal(together.predict(X), exact.predict(X))
        return
    for label in range(3):
        alone = solver(tol=1e-8).fit(X, y == label)
        np.testing.assert_allclose(together.decision_function(X)[:, label], alone.decision_function(X), atol=1e-6)


def test_a_good_start_is_used():
    X, y = blobs(300, shift=0.3)
    rows = Rows(X, y, np.full(300, 2.0))
    start = LaSVC(2.0, gamma=0.3, random_state=0, dtype="float64").fit(X, y)
    for selection in SELECTIONS:
        cold = run(learner_for(rows, selection, tau=1e-6), rows)
        warm = learner_for(rows, selection, tau=1e-6)
        warm.start = StartingPoint(start.support_, start.dual_coef_)
        duals = []
        warm = run(
            learner_state.restore(warm.settings, learner_state.state(warm)),
            rows,
            watch=lambda progress, seconds, duals=duals: bool(duals.append(float(progress.dual[0]))),
        )
        assert warm.converged
        # How many steps a start saves depends on the selection and on the last bits, but the steps always begin at it.
        assert min(dual for dual in duals if dual != 0.0) >= start.dual_objective_ * (1 - 1e-9)
        assert warm.progress().dual[0] == pytest.approx(cold.progress().dual[0], rel=1e-8)
        again = learner_for(rows, selection, tau=1e-5)
        alpha = coefficients(warm, 300)
        again.start = StartingPoint(np.arange(300), alpha[None])
        assert run(again, rows).progress().steps == 0


def test_the_form_of_the_rows_threads_and_weights_of_zero():
    X, y = blobs(200, shift=0.4)
    X[np.abs(X) < 0.8] = 0
    weights = np.ones(200)
    weights[::4] = 0
    dense = solver(tol=1e-8).fit(X, y, weights)
    assert not np.any(dense.support_ % 4 == 0)
    fewer = solver(tol=1e-8).fit(X[weights > 0], y[weights > 0])
    np.testing.assert_allclose(dense.decision_function(X), fewer.decision_function(X), atol=1e-6)
    sparse = solver(tol=1e-8).fit(sp.csr_matrix(X), y, weights)
    np.testing.assert_allclose(dense.decision_function(X), sparse.decision_function(X), atol=1e-6)
    for dtype in ("float32", "float64"):
        with dask.config.set({"dasksvm.threads": 1}):
            one = digest(solver(dtype=dtype).fit(X, y))
        with dask.config.set({"dasksvm.threads": 2}):
            assert digest(solver(dtype=dtype).fit(X, y)) == one


@every_selection
@pytest.mark.parametrize("stop", ["kkt", "gain"])
def test_duals_of_scikit_learn(selection, stop):
    X, y = make_moons(400, noise=0.25, random_state=0)
    sign, K = 2 * y - 1, matrix(Kernel("rbf", 1.0), X)
    reference = SVC(C=10.0, gamma=1.0, tol=1e-7).fit(X, y)
    model = solver(C=10.0, gamma=1.0, tol=1e-6, working_set=selection, stop=stop).fit(X, y)
    duals = []
    for each in (reference, model):
        alpha = np.zeros(400)
        alpha[each.support_] = each.dual_coef_[0]
        duals.append(dual_of(K, sign, alpha))
    assert duals[1] == pytest.approx(duals[0], rel=1e-6)
    assert model.history_[-1]["dual"] == pytest.approx(duals[1], rel=1e-12)


@pytest.mark.parametrize("kernel", [Kernel("linear"), Kernel("sigmoid", 0.5, 0.1)])
@every_selection
def test_flat_and_indefinite_kernels_end(kernel, selection):
    X, y = blobs(80, d=3, shift=0.3)
    X[::5] = 0.0
    X[1::10] = X[2::10]
    learner = solved(X, y, 1.0, selection, kernel=kernel, tau=1e-6)
    assert learner.converged or selection == "mg"
    assert np.isfinite(learner.progress().dual).all()


def test_one_class_or_rounding_ends_the_steps():
    X, y = blobs(50)
    alone = solved(X, np.ones(50, int), 1.0)
    assert alone.converged
    assert alone.progress().steps == 0
    for selection in SELECTIONS:
        learner = solved(1e3 * X, y, 1e6, selection, kernel=Kernel("linear"), tau=1e-300, limit=200_000)
        assert learner.progress().steps < 200_000
        assert not learner.converged or learner.progress().delta[0] <= 0


@every_selection
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_solving_a_square_of_kernel_values(selection, dtype):
    for seed, count in ((0, 60), (1, 1100)):
        X, y = blobs(count, seed=seed, shift=0.4)
        K = matrix(RBF, X).astype(dtype)
        lower, upper = np.minimum(0, 1.5 * y), np.maximum(0, 1.5 * y)
        alpha, g = np.zeros(count), y.astype(np.float64)
        steps = solve_by_pairs(K, alpha, g, lower, upper, 1e-4, 50_000, SELECTIONS.index(selection))
        np.testing.assert_allclose(g, y - K @ alpha, atol=1e-4 if dtype == np.float32 else 1e-10)
        best = np.zeros(count), y.astype(np.float64)
        solve_by_pairs(K, *best, lower, upper, 1e-8, 500_000, SELECTIONS.index("mvp"))
        assert abs(alpha.sum()) < 1e-9
        assert dual_of(K, y, alpha) == pytest.approx(dual_of(K, y, best[0]), rel=1e-6)
        assert 0 < steps < 50_000
        few = np.zeros(count), y.astype(np.float64)
        assert solve_by_pairs(K, *few, lower, upper, 1e-4, 5, SELECTIONS.index(selection)) == 5


def test_maximum_gain_gets_stuck_in_a_square_too():
    K = FEATURES @ FEATURES.T
    lower, upper = np.minimum(0, 0.1 * SIGNS), np.maximum(0, 0.1 * SIGNS)
    found = {}
    for selection in ("mg", "hmg"):
        # The start is one step before the paper's point, so that the previous pair is {1, 3}.
        alpha = np.array([-0.05, 0.0, 0.05, 0.0])
        g = SIGNS - K @ alpha
        solve_by_pairs(K, alpha, g, lower, upper, 1e-9, 100, SELECTIONS.index(selection))
        found[selection] = dual_of(K, SIGNS, alpha)
    assert found["hmg"] == pytest.approx(exact_dual(K, SIGNS, np.full(4, 0.1)), abs=1e-9)
    assert found["mg"] <= found["hmg"]


def test_plans_ask_for_the_rows_that_are_missing_and_no_others():
    X, y = blobs(200, shift=0.4)
    rows = Rows(X, y, np.full(200, 2.0))
    for selection in SELECTIONS:
        learner, requested = learner_for(rows, selection, shrinking=False), []
        plans = learner.plans

        def watched(plans=plans, requested=requested):
            new = plans()
            requested.extend(len(plan.slots) for plan in new if isinstance(plan, RowsPlan))
            return new

        learner.plans = watched
        run(learner, rows)
        now = learner.finishing[0]
        assert sum(requested) == now.computed == learner.evaluations // 200
        assert now.computed <= 200
        assert max(requested) <= 2


def test_the_history_is_shorter_than_the_run():
    X, y = make_moons(500, noise=0.3, random_state=0)
    model = SMOSVC(C=1000, gamma=1.0, working_set_size=2, cache_size=0.01, shrinking=False, random_state=0).fit(X, y)
    assert len(model.history_) < model.kernel_evaluations_ / 500 / 4
    assert model.history_[-1]["phase"] == "done"
