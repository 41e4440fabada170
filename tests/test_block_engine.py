"""The block engine: its invariants after every result, its optimum, its budgets, and that it is the same wherever it runs."""

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import SVC

from dasksvm import HeldOut, LaSVC, train
from dasksvm.solver.blocks import learner as block_learner
from dasksvm.solver.blocks import rounds as block_rounds
from dasksvm.solver.blocks.admission import SHARE, admission_levels
from dasksvm.solver.blocks.learner import BlocksLearner, BlocksSettings
from dasksvm.solver.blocks.rounds import RoundRules, Rounds
from dasksvm.solver.engine import learner_state
from dasksvm.solver.engine.learners import make_learner
from dasksvm.solver.engine.selection import RandomOrder
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.kernels.registry import KERNELS
from dasksvm.solver.messages import RowsPlan, ScorePlan
from dasksvm.solver.state.working_arrays import empty_working, insert, refresh_extremes, set_alpha, take_place
from dasksvm.training.local_executor import LocalExecutor
from tests.clusters import cluster, digest, history
from tests.helpers import COMMON, Rows, blobs, coefficients, exact_dual, kernel_matrix, run, run_checked

TAU = 1e-3


def learner_for(rows, kernel, *, count=5, **options):
    """A learner in small blocks that has been fed."""
    given = {"tau": TAU, "batch": 200, "working_set": 60} | options
    learner = make_learner(BlocksSettings(**(COMMON | {"kernel": kernel} | given)))
    order = RandomOrder((len(rows.sign),), 0)
    ids = order.rows(0, 0, len(rows.sign))
    learner.feed(order, np.concatenate([ids[rows.sign[ids] == label][:count] for label in (-1, 1)]))
    return learner


def gaussians(n=1200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    return X, np.where(X[:, 0] + X[:, 1] ** 2 + 0.5 * rng.normal(size=n) > 0.8, "yes", "no")


@pytest.mark.parametrize("name", list(KERNELS))
def test_every_state_satisfies_the_invariants(name):
    """After every result before finishing, and at the end, α is in its box and adds up to 0, and gradients are those of α."""
    X, y = blobs(500)
    rows = Rows(X, y, np.random.default_rng(1).uniform(0.0, 3.0, 500))
    learner = learner_for(rows, Kernel(name, 0.2 if name != "sigmoid" else 0.01, 0.5, 2), epochs=2)
    run_checked(learner, rows)
    assert learner.progress().delta[0] <= TAU


@given(seed=st.integers(0, 1000), batch=st.integers(64, 400), size=st.integers(4, 100))
@settings(max_examples=20)
def test_passes_reach_the_optimum_whatever_the_sizes(seed, batch, size):
    X, y = blobs(80, seed=seed)
    bound = np.random.default_rng(seed).uniform(0.1, 3.0, 80)
    rows = Rows(X, y, bound)
    kernel = Kernel("rbf", 0.3)
    learner = run(learner_for(rows, kernel, epochs=0, tau=1e-7, batch=batch, working_set=size), rows)
    K = kernel_matrix("rbf", X, X, 0.3, 0, 0)
    alpha = coefficients(learner, 80)
    assert learner.converged
    assert alpha @ y - 0.5 * alpha @ K @ alpha == pytest.approx(exact_dual(K, y, bound), rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_one_pass_predicts_like_svc_and_two_more_closely(seed):
    X, y = gaussians(seed=seed)
    peer = SVC(C=2.0, gamma=0.1).fit(X, y)
    errors = []
    for epochs in (1, 2):
        model = LaSVC(C=2.0, gamma=0.1, engine="blocks", epochs=epochs, random_state=0).fit(X, y)
        errors.append(np.mean(model.predict(X) != peer.predict(X)))
    assert errors[0] < 0.04
    assert errors[1] < 0.01


def test_members_that_are_left_out_of_finishing_get_their_gradients_back(monkeypatch):
    monkeypatch.setattr(block_rounds, "SHRINK_ROUNDS", 2)
    monkeypatch.setattr(block_rounds, "SHRINK_SHARE", 0.95)
    X, y = blobs(600, shift=0.1)
    rows = Rows(X, y, np.full(600, 0.05))
    learner = learner_for(rows, Kernel("rbf", 0.3), tau=1e-6, working_set=20)
    shrunk = []

    def watch(progress, seconds):
        shrunk.extend(bool(finisher.alpha_before) for finisher in learner.finishing)
        return False

    run(learner, rows, watch=watch)
    assert any(shrunk), "the problem was to have members that can be left out"
    (finisher,) = learner.finishing
    assert not finisher.alpha_before
    exact = learner.expansion.exact_gradients(0, finisher.alpha[0])
    np.testing.assert_allclose(finisher.g[finisher.member], exact[finisher.member[0]], atol=1e-10)
    assert finisher.dual[0] == pytest.approx(0.5 * finisher.alpha[0] @ (finisher.sign[0] + exact), rel=1e-10)
    whole = Rounds(learner.expansion, learner.expansion.kernel_values, RoundRules(1e-6, 20, shrink=False))
    while whole.choose(learner.expansion):
        whole.solve(learner.expansion)
    assert finisher.dual[0] == pytest.approx(whole.dual[0], rel=1e-9)


def test_a_round_at_the_end_of_a_pass_is_followed_by_another_pass():
    """Here the second pass admits nobody, but its round ends what the first, coarse finishing left."""
    values = """
        85096729 -70968487 -60719719 -79782292 -58423823 -23792338 -13181505 205811447 -50640366 -28872437 45857773
        -95307407 -36862715 1331848 77414595 -131601486 137146946 -35245737 16941642 84708830 66079292 105923189
        17319782 -1961335 31647854 -99571539 121418737 -77538625 -126024388 205640878 -13644494 -117912487 185226972
        -32971262 106207579 -82948872 -24878002 -168852935 -190893936 -97643459 -7803902 79798571 242622050
        """
    X = np.array([int(value) for value in values.split()])[:, None] / 1e8
    y = np.array([1 if sign == "+" else -1 for sign in "+--+-+-+---++--+--+----+++--++----+-+-++--+"])
    weights = np.full(43, 1 / 43)
    weights[:2] = 0.1
    options = {"engine": "blocks", "epochs": "converged", "dtype": "float64", "tol": 1e-6, "random_state": 0}
    model = LaSVC(gamma=1.0, **options).fit(X, y, sample_weight=weights)
    assert model.certificate(X, y, weights).violation[0] <= 1e-6


def test_passes_skip_what_cannot_have_become_a_violator(monkeypatch):
    """Of the examples that a pass skips, hardly any would violate; the last pass looks at all."""
    X, y = blobs(1500, shift=0.4)
    rows = Rows(X, y, np.full(1500, 3.0))
    learner = learner_for(rows, Kernel("rbf", 0.3), epochs=0)
    shares, missed = [], 0
    begin = BlocksLearner._next_pass

    def watching(self, adopt):
        nonlocal missed
        begin(self, adopt)
        shares.append(1.0)
        if self.queue is not None:
            s = self.expansion
            alpha, members = s.weights()[0], s.example[: s.places]
            outside = np.setdiff1d(np.arange(1500), members[s.working.member[0, : s.places]])
            skipped = np.setdiff1d(outside, self.queue)
            shares[-1] = 1 - len(skipped) / len(outside)
            g = y[skipped] - kernel_matrix("rbf", X[skipped], X[members], 0.3, 0.0, 1) @ alpha
            upper, lower = s.entry_limits()
            missed += int(np.count_nonzero(np.where(y[skipped] > 0, g - lower[0], upper[0] - g) > 2 * TAU))

    monkeypatch.setattr(BlocksLearner, "_next_pass", watching)
    run(learner, rows)
    assert learner.converged
    assert min(shares) < 0.2
    assert missed <= 3
    assert shares[-1] == 1.0


def working(alpha, sign, g, bound=1.0):
    w = empty_working(1, 1)
    for a, s, gradient in zip(alpha, sign, g, strict=True):
        place = take_place(w)
        insert(w, 0, place, float(s), bound, float(gradient))
        set_alpha(w, 0, place, float(a))
    refresh_extremes(w, 0)
    return w, len(alpha)


def test_the_levels_lie_around_the_mean_gradient_of_the_free_support_vectors():
    w, places = working([0.5, -0.5, 1.0, -1.0], [1, -1, 1, -1], [0.4, -0.2, 0.9, -0.6])
    upper, lower = admission_levels(w, places, 0)
    half = 0.5  # of the support vectors are at their bound
    assert upper[0] == pytest.approx(0.1 + SHARE * half * 0.6)
    assert lower[0] == pytest.approx(0.1 - SHARE * half * 0.6)


def test_with_free_support_vectors_only_the_levels_are_the_bias():
    w, places = working([0.5, -0.5, 0.0], [1, -1, 1], [0.4, -0.2, -0.3])
    assert [level[0] for level in admission_levels(w, places, 0)] == pytest.approx([0.1, 0.1])


def test_while_s_is_small_the_levels_are_the_extremes():
    w, places = working([0.5, -0.5], [1, -1], [0.4, -0.2])
    upper, lower = admission_levels(w, places, 3)
    assert (upper[0], lower[0]) == (0.4, -0.2)


def test_without_a_free_support_vector_all_that_narrow_the_range_of_the_bias_are_admitted():
    """Every bias from -0.2 to 0.4 is optimal for S, which has one member at each bound and none that is free."""
    w, places = working([1.0, -1.0, 0.0, 0.0], [1, -1, 1, -1], [0.9, -0.6, -0.2, 0.4])
    upper, lower = admission_levels(w, places, 0)
    assert (upper[0], lower[0]) == (0.4, -0.2)


def test_a_second_pass_scores_no_members_but_counts_them(monkeypatch):
    X, y = blobs(900)
    rows = Rows(X, y, np.full(900, 2.0))
    learner = learner_for(rows, Kernel("rbf", 0.3), epochs=2)
    put, scored = BlocksLearner._put_in_flight, []

    def spying(self, plan):
        if isinstance(plan, ScorePlan) and self.phase == "online" and self.epoch == 1:
            scored.extend(plan.rows)
            assert not np.isin(plan.rows, self.expansion.examples()).any()
        return put(self, plan)

    monkeypatch.setattr(BlocksLearner, "_put_in_flight", spying)
    run(learner, rows)
    assert learner.seen == 1800
    assert 0 < len(scored) < 900


def dropping(**options):
    """A learner that drops members which violate again later, and its rows; a tenth of the labels is wrong."""
    X, y = gaussians(n=2500, seed=3)
    wrong = np.random.default_rng(0).random(len(y)) < 0.1
    rows = Rows(X, np.where((y == "yes") != wrong, 1, -1), np.full(len(y), 20.0))
    return learner_for(rows, Kernel("rbf", 0.5), **options), rows


def test_members_that_were_dropped_are_looked_at_again(monkeypatch):
    """The dual is larger then, the examples count once, and each of those that are scored again was dropped and is outside S."""
    learner, rows = dropping()
    look, looked = learner._look_again, []

    def spy():
        again = look()
        if again:
            s = learner.expansion
            looked.append((learner.queue.copy(), s.example[np.flatnonzero(s.working.holders[: s.places])]))
        return again

    monkeypatch.setattr(learner, "_look_again", spy)
    run(learner, rows)
    ((queue, members),) = looked
    assert len(queue) > 50
    assert len(np.unique(queue)) == len(queue)
    assert not np.isin(queue, members).any()
    assert learner.progress().seen == 2500
    plain, _ = dropping()
    monkeypatch.setattr(plain, "_look_again", lambda: False)
    assert learner.progress().dual[0] > 1.001 * run(plain, rows).progress().dual[0]


@pytest.mark.parametrize("shares", [(0.0, 0.0), (1.0, 1.0)])
def test_dropped_members_are_not_looked_at_where_that_does_not_pay(monkeypatch, shares):
    monkeypatch.setattr(block_learner, "LOOK_AGAIN", shares)
    learner, rows = dropping()
    run(learner, rows)
    assert not learner.looking_again
    assert learner.dropped.any()


def test_no_second_pass_begins_while_a_run_looks_again():
    """The share of bounded support vectors, which decides whether there is one, may rise while a run looks again."""
    learner, rows = dropping(epochs=2, least_bounded=1.0)

    def watch(progress, seconds):
        if learner.looking_again and progress.phase == "online":
            learner.settings = replace(learner.settings, least_bounded=0.0)
        return False

    run(learner, rows, watch=watch)
    assert learner.settings.least_bounded == 0.0
    assert learner.progress().seen == 2500


def test_a_run_looks_again_unless_a_budget_ended_the_pass():
    whole, rows = dropping()
    exact, _ = dropping(max_examples=2500)
    short, _ = dropping(max_examples=2400)
    for learner in (whole, exact, short):
        run(learner, rows)
    assert np.array_equal(coefficients(whole, 2500), coefficients(exact, 2500))
    assert not short.looking_again


def test_a_run_that_looks_again_continues_from_its_state():
    whole, rows = dropping()
    states = []

    def watch(progress, seconds):
        if whole.looking_again and progress.phase == "online":
            states.append(learner_state.state(whole))
        return False

    run(whole, rows, watch=watch)
    assert len(states) > 1
    for state in states:
        resumed = run(learner_state.restore(whole.settings, state), rows)
        assert np.array_equal(coefficients(whole, 2500), coefficients(resumed, 2500))


def test_a_state_between_choosing_and_solving_continues_bitwise():
    """On a cluster, a snapshot may be taken when a round of finishing has been chosen and not been solved."""
    X, y = blobs(500)
    rows = Rows(X, y, np.full(500, 2.0))
    whole, cut = (learner_for(rows, Kernel("rbf", 0.3)) for _ in range(2))
    run(whole, rows)
    executor = LocalExecutor(cut, rows, 1)
    with pytest.raises(StopIteration):  # ends the run when finishing has begun
        executor.run(lambda progress, seconds: next(iter(())) if progress.phase == "finishing" else False)
    plans = cut.plans()
    assert all(isinstance(plan, RowsPlan) for plan in plans)
    assert plans, "the problem was to need more rounds"
    again = run(learner_state.restore(cut.settings, learner_state.state(cut)), rows)
    np.testing.assert_array_equal(coefficients(again, 500), coefficients(whole, 500))


@pytest.mark.parametrize("shape", ["ovr", "ovo"])
def test_several_problems_reach_the_optimum_of_each(shape):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 400)
    X = rng.normal(size=(400, 3)) + y[:, None]
    options = {"C": 2.0, "gamma": 0.3, "decision_function_shape": shape, "epochs": "converged", "tol": 1e-6}
    blocks, single = (
        LaSVC(engine=engine, dtype="float64", random_state=0, **options).fit(X, y) for engine in ("blocks", "single")
    )
    np.testing.assert_allclose(blocks.dual_objective_, single.dual_objective_, rtol=1e-6)
    np.testing.assert_array_equal(blocks.predict(X), single.predict(X))


@pytest.mark.parametrize("budget", [{"max_examples": 300}, {"max_support": 70}])
def test_budgets_hold(budget):
    X, y = gaussians()
    sizes = []
    watched = [lambda progress, seconds: sizes.append((progress.seen, progress.members))]
    trained = train((X, y), LaSVC(C=2.0, gamma=0.1, engine="blocks", random_state=0, **budget), callbacks=watched)
    seen, members = np.array(sizes).T
    assert trained.stopped
    if "max_examples" in budget:
        assert seen.max() == 300
    else:
        assert members.max() <= 70
        assert seen.max() < len(y)
    peer = LaSVC(C=2.0, gamma=0.1, engine="single", random_state=0, **budget).fit(X, y)
    assert trained.estimator.score(X, y) > peer.score(X, y) - 0.05


def test_sparse_rows_give_the_dense_model():
    rng = np.random.default_rng(0)
    X = sp.random(800, 300, 0.02, "csr", rng=rng, dtype=np.float64)
    y = np.asarray(X[:, :150].sum(axis=1)).ravel() > np.asarray(X[:, 150:].sum(axis=1)).ravel()
    options = {"engine": "blocks", "dtype": "float64", "tol": 1e-6, "epochs": "converged", "random_state": 0}
    sparse, dense = LaSVC(**options).fit(X, y), LaSVC(**options).fit(X.toarray(), y)
    assert sparse.dual_objective_ == pytest.approx(dense.dual_objective_, rel=1e-6)
    np.testing.assert_allclose(sparse.decision_function(X), dense.decision_function(X.toarray()), atol=1e-4)


def test_partial_fit_continues_and_weights_count():
    X, y = gaussians()
    model = LaSVC(C=2.0, gamma=0.1, engine="blocks", random_state=0)
    for start in range(0, 1200, 400):
        model.partial_fit(X[start : start + 400], y[start : start + 400], classes=["no", "yes"])
    assert model.score(X, y) > LaSVC(C=2.0, gamma=0.1, random_state=0).fit(X, y).score(X, y) - 0.03
    weights = np.where(y == "yes", 0.0, 1.0)
    weights[:600] = 1.0
    weighted = LaSVC(C=2.0, gamma=0.1, engine="blocks", random_state=0).fit(X, y, sample_weight=weights)
    assert set(weighted.support_) <= set(np.flatnonzero(weights))


@pytest.mark.parametrize("every", [350, 400, 700, 900])
def test_no_evaluation_is_left_out_in_later_passes(every):
    """Members that a pass leaves out count as seen: an evaluation that falls due with them takes place."""
    X, y = gaussians()
    watched = HeldOut(X[:200], y[:200], every=every)
    train((X, y), LaSVC(C=2.0, gamma=0.1, engine="blocks", epochs=3, random_state=0), callbacks=[watched])
    assert len(watched.entries) == 3600 // every


@pytest.mark.parametrize("epochs", [1, 2, "converged"])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_model_is_the_same_on_any_number_of_threads_and_workers(epochs, classes, monkeypatch):
    X, _ = gaussians()
    y = np.digitize(X[:, 0] + X[:, 1] ** 2, [0.8, 2.0][: classes - 1])
    watched = HeldOut(X[:200], y[:200], every=400)
    solver = LaSVC(C=2.0, gamma=0.1, engine="blocks", epochs=epochs, random_state=0)
    here = []
    for threads in (1, 2):
        monkeypatch.setattr("dasksvm.config.threads", lambda threads=threads: threads)
        here.append(train((X, y), solver, callbacks=[watched]).estimator)
    chunks = da.from_array(X, chunks=(1200, 5))
    there = []
    for workers in (1, 2):
        with cluster(workers) as client:
            there.append(train((chunks, y), solver, client=client, callbacks=[watched]).estimator)
    local = train((chunks, y), solver, callbacks=[watched]).estimator
    assert digest(here[0]) == digest(here[1])
    assert len({digest(each) for each in (local, *there)}) == 1
    assert all(history(each) == history(local) for each in there)
