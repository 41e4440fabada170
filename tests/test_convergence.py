"""Claims of convergence: no example of the whole set violates by more than `tol`, whatever the parameters are."""

import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from dasksvm import SMOSVC, LaSVC, MulticlassSVC
from dasksvm.solver.decomposition.rules import BlockRules, PairRules
from dasksvm.solver.engine import learner_state
from dasksvm.solver.engine.learners import make_learner
from dasksvm.solver.engine.selection import RandomOrder
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.lasvm.outside import best_bias
from tests.clusters import cluster
from tests.helpers import Rows, blobs, coefficients, decomposing, kernel_matrix, learner_for, run

SOLVERS = {
    "lasvc": lambda **options: LaSVC(epochs="converged", engine="single", **options),
    "engine": lambda **options: LaSVC(epochs="converged", engine="blocks", **options),
    "blocks": SMOSVC,
    "pairs": lambda **options: SMOSVC(working_set_size=2, **options),
}


def moons(n=1500, noise=0.3):
    return make_moons(n, noise=noise, random_state=0)


def conditions(model, X, y, box, gamma):
    """The dual, the primal and the largest violation of a two-class rbf model, from its coefficients and the kernel's formula."""
    K, sign = kernel_matrix("rbf", X, X, gamma, 0, 0), np.where(y == model.classes_[1], 1.0, -1.0)
    alpha = np.zeros(len(y))
    alpha[model.support_] = model.dual_coef_[0]
    f = K @ alpha
    lacking = 1.0 - sign * (f + model.intercept_[0])
    half = 0.5 * alpha @ f
    may_rise, may_fall = sign * alpha < box * (1 - 1e-12), sign * alpha > box * 1e-12
    violation = np.maximum(np.where(may_rise, lacking, 0.0), np.where(may_fall, -lacking, 0.0))
    return alpha @ sign - half, half + box @ np.maximum(lacking, 0.0), violation.max()


def optimum(X, y, C, gamma, weights=None):
    """The dual that LIBSVM reaches; rows of weight 0 are ignored."""
    if weights is not None:
        X, y, weights = (array[weights > 0] for array in (X, y, weights))
    K = kernel_matrix("rbf", X, X, gamma, 0, 0)
    peer = SVC(C=C, kernel="precomputed", tol=1e-9, max_iter=1_000_000)
    with warnings.catch_warnings():
        # If LIBSVM does not converge, its dual is still a lower bound.
        warnings.simplefilter("ignore", ConvergenceWarning)
        peer.fit(K, y, sample_weight=weights)
    alpha = np.zeros(len(y))
    alpha[peer.support_] = peer.dual_coef_[0]
    return alpha @ np.where(y == peer.classes_[1], 1.0, -1.0) - 0.5 * alpha @ K @ alpha


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("C", [2e-3, 6e-4, 1e-4, 1e-6])
def test_small_boxes_reach_the_optimum(solver, C):
    """Every member is at a bound, so that δ of S does not bound the violation of pairs outside S."""
    X, y = moons()
    model = SOLVERS[solver](C=C, gamma=2, random_state=0).fit(X, y)
    dual, primal, violation = conditions(model, X, y, np.full(len(y), C), 2)
    assert violation <= 1e-3
    assert dual == pytest.approx(optimum(X, y, C, 2), rel=1e-5)
    assert primal - dual <= 2e-3 * C * len(y)
    assert model.certificate(X, y).violation[0] <= 1e-3


def test_weights_that_add_up_to_one_reach_the_optimum():
    X, y = moons()
    weights = np.full(len(y), 1 / len(y))
    model = LaSVC(gamma=2, epochs="converged", random_state=0).fit(X, y, sample_weight=weights)
    assert model.certificate(X, y, weights).violation[0] <= 1e-3
    assert model.score(X, y) == pytest.approx(SVC(gamma=2).fit(X, y, sample_weight=weights).score(X, y), abs=0.01)


@pytest.mark.parametrize("engine", ["single", "blocks"])
@pytest.mark.parametrize("C", [1e-2, 2e-3, 1e-3, 6e-4, 1e-4, 1e-6])
def test_one_pass_with_a_small_box_predicts_both_classes(C, engine):
    """With few free support vectors their gradients do not determine the bias: it is then the best one for the whole set."""
    X, y = moons()
    model = LaSVC(C=C, gamma=2, engine=engine, random_state=0).fit(X, y)
    assert model.score(X, y) > SVC(C=C, gamma=2).fit(X, y).score(X, y) - 0.02


@st.composite
def problems(draw):
    """A small two-class problem: rows, labels, C, γ and weights."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    n = draw(st.integers(8, 50))
    y = np.where(rng.random(n) < draw(st.sampled_from([0.5, 0.3, 0.1])), 1, -1)
    y[:2] = 1, -1
    X = rng.normal(size=(n, draw(st.integers(1, 4)))) + draw(st.sampled_from([0.0, 0.3, 1.0])) * y[:, None]
    X = np.round(X) if draw(st.integers(0, 4)) == 0 else X  # some rows are equal
    kinds = {
        "none": None,
        "any": rng.uniform(0.1, 3.0, n),
        "some are 0": rng.integers(0, 3, n) + 0.0,
        "1/n": np.full(n, 1 / n),
    }
    weights = kinds[draw(st.sampled_from(sorted(kinds)))]
    if weights is not None:
        weights[:2] = np.maximum(weights[:2], 0.1)
    return X, y, 10.0 ** draw(st.floats(-6, 6)), 10.0 ** draw(st.floats(-1, 1)), weights


def check_a_claim(solver, problem, dtype, tol):
    """Train; return the violation, or None if the run warns that `tol` was not reached."""
    X, y, C, gamma, weights = problem
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model = SOLVERS[solver](C=C, gamma=gamma, random_state=0, dtype=dtype, tol=tol).fit(X, y, sample_weight=weights)
    box = C * (np.ones(len(y)) if weights is None else weights)
    dual, primal, violation = conditions(model, X, y, box, gamma)
    if caught:
        (text,) = (str(each.message) for each in caught)
        found = re.search(r"violation is ([-+.e0-9]+\d)(?:, give or take ([-+.e0-9]+\d))?[;.]", text)
        assert float(found.group(1)) + float(found.group(2) or 0.0) > tol
        return None
    assert violation <= tol
    assert primal - dual <= 2 * tol * box.sum()
    return dual


def resolution(dtype, problem):
    """The largest change of a decision value through errors of one unit in the last place of the kernel values."""
    _, y, C, _, weights = problem
    return np.finfo(dtype).eps * C * (len(y) if weights is None else weights.sum())


@pytest.mark.parametrize("solver", ["lasvc", "engine", "blocks", pytest.param("pairs", marks=pytest.mark.slow)])
@given(problem=problems())
@settings(max_examples=50)
def test_float64_reaches_the_optimum(solver, problem):
    X, y, C, gamma, weights = problem
    dual = check_a_claim(solver, problem, "float64", 1e-6)
    if dual is None:
        assert resolution("float64", problem) > 1e-8, "a warning, though float64 resolves this"
    else:
        assert dual >= optimum(X, y, C, gamma, weights) * (1 - 1e-6)


@pytest.mark.parametrize("solver", ["lasvc", "engine", "blocks", pytest.param("pairs", marks=pytest.mark.slow)])
@given(problem=problems())
@settings(max_examples=50)
def test_float32_reaches_tol_or_says_so(solver, problem):
    if check_a_claim(solver, problem, "float32", 1e-3) is None:
        assert resolution("float32", problem) > 1e-4, "a warning, though float32 resolves this"


def test_the_warning_names_the_violation():
    X, y = moons(300)
    with pytest.warns(
        ConvergenceWarning, match=r"did not reach tol=1e-300 in float32: the largest violation is \S+, give"
    ):
        model = LaSVC(C=100, gamma=2, tol=1e-300, epochs="converged", random_state=0).fit(X, y)
    assert model.certificate(X, y).violation[0] > 1e-300


@pytest.mark.parametrize("selection", ["mg", "hmg"])
def test_the_gain_stop_does_not_claim_convergence_unchecked(selection):
    """The step of the pair of maximum gain may be short although another pair violates: the run stops there with a warning."""
    X, y = blobs(300, d=8, shift=0.2)
    X = X * np.geomspace(0.05, 5.0, 8)
    found = []
    for seed in range(4):
        model = SMOSVC(
            50, gamma=0.02, tol=0.3, working_set=selection, stop="gain", working_set_size=2, dtype="float64",
            random_state=seed,
        )  # fmt: skip
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(X, y)
        violation = model.certificate(X, y).violation[0]
        assert bool(caught) == (violation > 0.3)
        for each in caught:
            assert issubclass(each.category, ConvergenceWarning)
            assert f"the largest violation is {violation:.3g}" in str(each.message)
        found.append(violation > 0.3)
    assert any(found), "the problem was to have an end of this kind"


@pytest.mark.parametrize("engine", ["single", "blocks"])
@pytest.mark.parametrize("shape", ["ovr", "ovo"])
def test_each_of_several_problems_converges(shape, engine):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    X = rng.normal(size=(300, 3)) + y[:, None]
    for C in (1e-4, 1.0):
        model = LaSVC(C=C, gamma=0.5, epochs="converged", decision_function_shape=shape, engine=engine, random_state=0)
        model.fit(X, y)
        assert model.certificate(X, y).violation.max() <= 1e-3


@pytest.mark.parametrize("options", [{"solver": "batch"}, {"epochs": "converged"}], ids=["batch", "online"])
@pytest.mark.parametrize("machine", ["cs", "ww", "llw"])
def test_machines_converge(machine, options):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 200)
    X = rng.normal(size=(200, 3)) + y[:, None]
    for C in (1e-4, 1.0):
        model = MulticlassSVC(C=C, gamma=0.5, machine=machine, random_state=0, **options).fit(X, y)
        assert model.certificate(X, y).violation.max() <= 1e-3


def test_a_snapshot_during_the_last_check_continues_bitwise():
    X, y = blobs(600, seed=1)
    rows = Rows(X, y, np.full(600, 1e-4), np.float32)
    whole = run(learner_for(rows, Kernel("rbf", 0.3), epochs=0), rows)
    kept = []
    cut = learner_for(rows, Kernel("rbf", 0.3), epochs=0)

    def watch(progress, seconds):
        if progress.phase == "checking" and not kept:
            kept.append(learner_state.state(cut))
        return False

    run(cut, rows, watch=watch)
    again = run(learner_state.restore(cut.settings, kept[0]), rows)
    assert whole.converged
    assert again.converged
    np.testing.assert_array_equal(again.violation, whole.violation)
    np.testing.assert_array_equal(again.extremes, whole.extremes)
    np.testing.assert_array_equal(coefficients(again, 600), coefficients(whole, 600))


@pytest.mark.parametrize("solver", ["lasvc", "engine", "blocks"])
def test_a_cluster_makes_the_same_claim(solver):
    import dask.array as da

    X, y = moons(600)
    here = SOLVERS[solver](C=1e-3, gamma=2, random_state=0).fit(da.from_array(X, chunks=(200, 2)), y)
    with cluster(2) as client:
        there = SOLVERS[solver](C=1e-3, gamma=2, random_state=0, client=client).fit(
            da.from_array(X, chunks=(200, 2)), y
        )
    np.testing.assert_array_equal(there.dual_coef_, here.dual_coef_)
    np.testing.assert_array_equal(there.intercept_, here.intercept_)
    assert there.certificate(X, y).violation[0] <= 1e-3


@given(st.integers(0, 1000), st.integers(2, 30))
def test_the_best_bias_minimises_the_loss(seed, n):
    rng = np.random.default_rng(seed)
    weight = rng.choice([-1.0, 1.0], n) * rng.choice([0.5, 1.0, 2.0], n)
    weight[:2] = np.abs(weight[0]), -np.abs(weight[1])
    gradient = np.round(rng.normal(size=n), 1)

    def loss(b):
        return np.sum(np.abs(weight) * np.maximum(np.sign(weight) * (gradient - b), 0.0))

    low, high = best_bias(gradient, weight)
    least = min(loss(b) for b in gradient)  # the loss is convex and piecewise linear, with its corners there
    assert low <= high
    for b in (low, high, (low + high) / 2):
        assert loss(b) == pytest.approx(least)
    assert loss(low - 1e-3) > least
    assert loss(high + 1e-3) > least


@pytest.mark.parametrize(
    ("solver", "budget"),
    [
        ("lasvc", {"max_examples": 200}),
        ("engine", {"max_examples": 200}),
        ("engine", {"max_support": 20}),
        ("lasvc", {"max_support": 20}),
        ("blocks", {"max_iter": 10}),
    ],
)
def test_a_budget_that_ends_a_run_is_told(solver, budget):
    X, y = moons(600)
    ((name, value),) = budget.items()
    with pytest.warns(ConvergenceWarning, match=rf"(ended|stopped) .*{name}={value}.*the largest violation is \S+"):
        SOLVERS[solver](C=10, gamma=2, random_state=0, **budget).fit(X, y)


def test_a_run_that_is_stopped_while_it_takes_examples_in_claims_nothing():
    X, y = moons(300)
    rows = Rows(X, np.where(y > 0, 1, -1), np.full(300, 1.0))
    limit = 1 << 60
    for rules in (PairRules("second-order", "kkt", True, limit, 2), BlockRules("second-order", True, limit)):
        learner = make_learner(decomposing(Kernel("rbf", 2.0), rules))
        learner.feed(RandomOrder((300,), 0), np.array([0, 1, 2, 3, 4]))
        run(learner, rows, watch=lambda progress, seconds: True)
        assert learner.stopped
        assert not learner.converged


def test_a_budget_that_is_large_enough_is_not_told():
    X, y = moons(300)
    LaSVC(C=10, gamma=2, epochs="converged", max_examples=10**6, max_time=600, random_state=0).fit(X, y)
