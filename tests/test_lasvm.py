"""The online iterations compared with a literal transcription of paper 1, section 3.2, and with independent optima."""

import numpy as np
import pytest
from sklearn.svm import SVC

from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.state.direction_search import best_gain_down, best_gain_up
from tests.helpers import (
    DEFINITE_KERNELS,
    Rows,
    blobs,
    coefficients,
    exact_dual,
    kernel_matrix,
    learner_for,
    run,
    run_checked,
)

TAU = 1e-3


@pytest.mark.parametrize("name", DEFINITE_KERNELS)
@pytest.mark.parametrize("second_order", [False, True])
def test_every_state_satisfies_the_invariants(name, second_order):
    X, y = blobs(400)
    rows = Rows(X, y, np.full(400, 2.0))
    learner = learner_for(rows, Kernel(name, 0.2, 1.0, 2), second_order=second_order)
    run_checked(learner, rows)
    assert learner.progress().delta[0] <= TAU


@pytest.mark.parametrize("name", DEFINITE_KERNELS)
def test_converged_reaches_the_optimum_of_a_general_optimiser(name):
    X, y = blobs(60, seed=3)
    bound = np.random.default_rng(1).uniform(0.5, 3.0, 60)
    kernel = Kernel(name, 0.3, 0.5, 2)
    rows = Rows(X, y, bound)
    learner = run(learner_for(rows, kernel, epochs=0, tau=1e-7), rows)
    K = kernel_matrix(name, X, X, 0.3, 0.5, 2)
    alpha = coefficients(learner, 60)
    dual = alpha @ y - 0.5 * alpha @ K @ alpha
    assert dual == pytest.approx(exact_dual(K, y, bound), rel=1e-6)
    assert np.all(alpha >= np.minimum(0, bound * y))
    assert np.all(alpha <= np.maximum(0, bound * y))
    assert abs(alpha.sum()) < 1e-9


def test_converged_equals_libsvm():
    X, y = blobs(1500, seed=5, shift=0.3)
    rows = Rows(X, y, np.full(1500, 3.0))
    learner = run(learner_for(rows, Kernel("rbf", 0.1), epochs=0, tau=1e-4), rows, threads=2)
    peer = SVC(C=3.0, gamma=0.1, tol=1e-5).fit(X, y)
    alpha = np.zeros(1500)
    alpha[peer.support_] = peer.dual_coef_[0]
    np.testing.assert_allclose(learner.extremes.mean(), peer.intercept_[0], atol=1e-3)
    ours = coefficients(learner, 1500)
    K = kernel_matrix("rbf", X, X, 0.1, 0, 0)

    def dual(a):
        return a @ y - 0.5 * a @ K @ a

    assert dual(ours) == pytest.approx(dual(alpha), rel=1e-6)


def test_one_epoch_is_nearly_the_optimum():
    X, y = blobs(3000, seed=7, shift=0.5)
    rows = Rows(X, y, np.full(3000, 1.0), np.float32)
    once = run(learner_for(rows, Kernel("rbf", 0.1)), rows)
    optimum = run(learner_for(rows, Kernel("rbf", 0.1), epochs=0), rows)
    assert 0.97 * optimum.progress().dual[0] < once.progress().dual[0] <= optimum.progress().dual[0] * (1 + 1e-5)


def steps_of_the_paper(K, y, bound, seeds, order, tau):
    """Run LASVM as printed in paper 1; return α and the members."""
    lower, upper = np.minimum(0, bound * y), np.maximum(0, bound * y)
    alpha, g = np.zeros(len(y)), np.zeros(len(y))
    members: list[int] = []

    def extremes():
        s = np.array(members, int)
        up, down = s[alpha[s] < upper[s]], s[alpha[s] > lower[s]]
        return (int(up[np.argmax(g[up])]) if len(up) else -1, int(down[np.argmin(g[down])]) if len(down) else -1)

    def search(i, j):
        length = min(
            (g[i] - g[j]) / max(K[i, i] + K[j, j] - 2 * K[i, j], 1e-12), upper[i] - alpha[i], alpha[j] - lower[j]
        )
        alpha[i] += length
        alpha[j] -= length
        for k in (i, j):
            alpha[k] = lower[k] if alpha[k] <= lower[k] + 1e-12 * bound[k] else alpha[k]
            alpha[k] = upper[k] if alpha[k] >= upper[k] - 1e-12 * bound[k] else alpha[k]
        s = np.array(members)
        g[s] -= length * (K[i, s] - K[j, s])

    def process(k):
        if k in members:
            return
        g[k] = y[k] - K[k] @ alpha
        members.append(k)
        i, j = extremes()
        i, j = (k, j) if y[k] > 0 else (i, k)
        if i >= 0 and j >= 0 and g[i] - g[j] > tau:
            search(i, j)

    def reprocess():
        i, j = extremes()
        if i < 0 or j < 0 or g[i] - g[j] <= tau:
            return
        search(i, j)
        i, j = extremes()
        for s in list(members):
            if alpha[s] == 0 and ((y[s] < 0 and g[s] >= g[i]) or (y[s] > 0 and g[s] <= g[j])):
                members.remove(s)

    for k in [*seeds, *order]:
        process(int(k))
        reprocess()
    return alpha, members


def test_online_iterations_equal_the_paper_step_by_step():
    """Compare the steps with those of the paper, for a C so small that every step ends at a bound.

    After a step that ends inside the box, both coefficients have the same gradient, and the next choice would depend on its last
    bit. A pair that violates by τ or more has a step of at least τ / 2, as curvatures are at most 2, so C is smaller than that.
    """
    rng = np.random.default_rng(2)
    n, bound = 300, np.full(300, 0.4 * TAU)
    X = rng.normal(size=(n, 3))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=n) > 0, 1, -1)
    kernel = Kernel("rbf", 0.5)
    for lookahead, drop in ((1, False), (8, True)):
        rows = Rows(X, y, bound)
        learner = learner_for(rows, kernel, finish=False, lookahead=lookahead, filter=drop)
        order, seeds = learner.order.rows(0, 0, n), learner.seeds
        run(learner, rows)
        K = kernel_matrix("rbf", X, X, 0.5, 0, 0)
        alpha, members = steps_of_the_paper(K, y.astype(float), bound, seeds, order, TAU)
        np.testing.assert_allclose(coefficients(learner, n), alpha, atol=1e-12)
        s = learner.expansion
        live = np.flatnonzero(s.working.holders[: s.places])
        assert set(s.example[live].tolist()) == set(members)


def test_reprocess_until_delta_max():
    X, y = blobs(600, seed=4, shift=0.2)
    rows = Rows(X, y, np.full(600, 5.0))
    loose = run(learner_for(rows, Kernel("rbf", 0.3), finish=False), rows)
    tight = run(learner_for(rows, Kernel("rbf", 0.3), finish=False, delta_max=0.1), rows)
    assert tight.progress().delta[0] <= 0.1 < loose.progress().delta[0]
    twice = run(learner_for(rows, Kernel("rbf", 0.3), finish=False, reprocess=3), rows)
    assert twice.progress().steps > loose.progress().steps


def test_members_of_one_class_are_kept_until_the_other_class_arrives():
    X, y = blobs(200)
    y[:] = -1
    rows = Rows(X, y, np.full(200, 1.0))
    learner = run(learner_for(rows, Kernel("rbf", 0.5), finish=False), rows)
    assert learner.progress().members == 5
    assert learner.progress().dual[0] == 0.0


def test_zero_rows_and_duplicates_do_no_harm():
    X, y = blobs(200)
    X[::4] = 0.0
    X[1::4] = X[1]
    rows = Rows(X, y, np.full(200, 1.0))
    learner = run(learner_for(rows, Kernel("linear"), epochs=0), rows)
    learner.expansion.check(1e-8)
    assert learner.progress().delta[0] <= TAU


def test_sigmoid_with_negative_curvature_ends():
    X, y = blobs(200)
    rows = Rows(X, y, np.full(200, 1.0))
    learner = run(learner_for(rows, Kernel("sigmoid", 0.5, -1.0)), rows)
    learner.expansion.check(1e-8)


def test_weight_zero_never_enters():
    X, y = blobs(300)
    bound = np.where(np.arange(300) % 3 == 0, 0.0, 1.0)
    rows = Rows(X, y, bound)
    learner = run(learner_for(rows, Kernel("rbf", 0.3), epochs=0), rows)
    assert not np.any(coefficients(learner, 300)[::3])


def test_no_free_support_vector_takes_the_bias_from_the_whole_set():
    """With two dense clusters and a tiny C every member is at its bound, and b is between the gradients of other examples."""
    rng = np.random.default_rng(0)
    y = np.where(np.arange(400) < 200, 1, -1)
    X = rng.normal(size=(400, 2)) + 2.0 * y[:, None]
    rows = Rows(X, y, np.full(400, 1e-3))
    learner = run(learner_for(rows, Kernel("linear")), rows)
    alpha = coefficients(learner, 400)
    g = y - X @ (X.T @ alpha)
    upper, lower = np.maximum(0, 1e-3 * y), np.minimum(0, 1e-3 * y)
    top, bottom = g[alpha < upper].max(), g[alpha > lower].min()
    if np.any((alpha > lower) & (alpha < upper) & (alpha != 0)):
        pytest.fail("the problem was to have no free support vector")
    np.testing.assert_allclose(learner.extremes[0], np.sort([top, bottom]), atol=1e-9)


def test_second_order_chooses_among_the_pairs_that_violate():
    """The largest gain may be with a member that hardly violates, where PROCESS would give up: another one counts then."""
    g, able = np.array([-0.1, 0.45, 0.0]), np.array([True, True, False])
    row, diagonal = np.array([0.0, 0.995, 1.0]), np.ones(3)
    # With i at gradient 0.5 the violations are 0.6 and 0.05, the gains 0.18 and 0.25.
    assert best_gain_down(g, able, row, diagonal, 0.5, 1.0, 0.0)[1] == 1
    assert best_gain_down(g, able, row, diagonal, 0.5, 1.0, 0.1) == (pytest.approx(0.18), 0)
    assert best_gain_up(-g, able, row, diagonal, -0.5, 1.0, 0.0)[1] == 1
    assert best_gain_up(-g, able, row, diagonal, -0.5, 1.0, 0.1) == (pytest.approx(0.18), 0)
    assert best_gain_down(g, able, row, diagonal, 0.5, 1.0, 0.7)[1] == -1
