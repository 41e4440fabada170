"""The guarantees that the learner gives to the executor of its plans."""

import inspect

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from dasksvm.config.blas import one_thread
from dasksvm.solver.engine import learner_state
from dasksvm.solver.engine.choice import execute as execute_plan
from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.learners import LEARNERS
from dasksvm.solver.engine.selection import Selection
from dasksvm.solver.engine.tiles import member_rows
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.lasvm import finishing
from dasksvm.solver.memory import Workspace
from dasksvm.solver.messages import RowsPlan
from tests.helpers import Rows, blobs, coefficients, learner_for, run

KERNEL = Kernel("rbf", 0.2)


def problem(n=1500, dtype=np.float32, shift=0.3, c=5.0):
    X, y = blobs(n, seed=11, shift=shift)
    return Rows(X, y, np.full(n, c), dtype)


def execute(plan, learner, rows):
    if isinstance(plan, RowsPlan):
        return member_rows(plan, learner.settings.kernel, Workspace())
    return execute_plan(plan, learner.settings.kernel, rows.features(plan.rows), rows.targets(plan.rows), Workspace())


def drive(learner, rows, stop_after=None):
    """Execute plans one by one, without threads; stop after `stop_after` results."""
    waiting = [*learner.pending(), *learner.plans()]
    taken = 0
    while waiting and taken != stop_after:
        learner.take(execute(waiting.pop(0), learner, rows))
        waiting += learner.plans()
        taken += 1
    return taken


def same(a, b, n):
    return np.array_equal(coefficients(a, n), coefficients(b, n)) and np.array_equal(a.extremes, b.extremes)


@pytest.mark.parametrize("criterion", ["random", "autoactive"])
def test_threads_do_not_change_a_bit(criterion):
    rows = problem()
    options = {"selection": Selection(criterion), "max_examples": 400}
    models = [run(learner_for(rows, KERNEL, **options), rows, threads) for threads in (1, 2, 3)]
    plain = learner_for(rows, KERNEL, **options)
    drive(plain, rows)
    assert all(same(plain, model, 1500) for model in models)


def test_the_seed_determines_the_model():
    rows = problem()
    assert not same(run(learner_for(rows, KERNEL, seed=0), rows), run(learner_for(rows, KERNEL, seed=1), rows), 1500)


@pytest.mark.parametrize(
    ("epochs", "criterion", "n"),
    [(1, "random", 600), (2, "random", 600), (0, "random", 600), (2, "active", 200), (0, "autoactive", 200)],
)
def test_a_run_continues_from_its_saved_state(epochs, criterion, n):
    rows = problem(n)
    # A cache too small for the rows of all members.
    options = {"epochs": epochs, "cache_bytes": 3 * n * n // 2, "selection": Selection(criterion, 20)}
    whole = learner_for(rows, KERNEL, **options)
    results = drive(whole, rows)
    half, taken, states = learner_for(rows, KERNEL, **options), 0, []
    for share in (0.02, 0.3, 0.6, 0.9, 0.99):
        taken += drive(half, rows, stop_after=max(1, int(share * results)) - taken)
        states.append(learner_state.state(half))
    drive(half, rows)
    for state in states:
        assert all(isinstance(value, np.ndarray | int | float | bool | str | np.generic) for value in state.values())
        resumed = learner_state.restore(half.settings, state)
        drive(resumed, rows)
        for one in (half, resumed):
            assert same(whole, one, n)
            assert one.progress().evaluations == whole.progress().evaluations


def test_results_out_of_sequence_are_refused():
    rows = problem()
    learner = learner_for(rows, KERNEL)
    learner.take(execute(learner.plans()[0], learner, rows))
    first, second = learner.plans()[:2]
    with pytest.raises(ValueError, match="was expected"):
        learner.take(execute(second, learner, rows))
    learner.take(execute(first, learner, rows))


def test_messages_are_read_only():
    rows = problem()
    learner = learner_for(rows, KERNEL)
    plan = learner.plans()[0]
    result = execute(plan, learner, rows)
    for array in (plan.rows, plan.view.alpha, result.rows, result.scored, result.margins):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_lookahead_is_always_in_flight():
    rows = problem()
    learner = learner_for(rows, KERNEL, lookahead=5)
    waiting = learner.plans()
    while waiting and learner.phase != "finishing":
        assert len(waiting) <= 5
        if learner.phase == "online" and learner.position < 1500:
            assert len(waiting) == 5
            assert all(plan.view.version >= plan.sequence - 5 for plan in waiting)
        learner.take(execute(waiting.pop(0), learner, rows))
        waiting += learner.plans()


@pytest.mark.parametrize("cache_bytes", [0, 20_000, 100_000])
def test_small_caches_reach_the_same_solution(cache_bytes):
    rows = problem(250, dtype=np.float64)
    large = run(learner_for(rows, KERNEL, epochs=0, tau=1e-5), rows)
    small = learner_for(rows, KERNEL, epochs=0, tau=1e-5, cache_bytes=cache_bytes)
    run(
        small,
        rows,
        watch=lambda progress, seconds: small.expansion.check(1e-7) if progress.phase == "online" else False,
    )
    assert small.progress().dual[0] == pytest.approx(large.progress().dual[0], rel=1e-7)


def test_leaving_candidates_out_saves_rows_and_hardly_lowers_the_dual():
    rows = problem(6000, shift=1.2, c=10.0)
    sent = {}
    for drop in (True, False):
        learner = learner_for(rows, KERNEL, filter=drop)
        count, waiting = 0, learner.plans()
        while waiting:
            result = execute(waiting.pop(0), learner, rows)
            count += len(result.rows) if hasattr(result, "margins") else 0
            learner.take(result)
            waiting += learner.plans()
        sent[drop] = (count, learner.progress().dual[0])
    assert sent[True][0] < 0.7 * sent[False][0]
    assert sent[True][1] > 0.97 * sent[False][1]


def test_budgets_end_the_online_iterations():
    rows = problem(4000)
    few = run(learner_for(rows, KERNEL, max_examples=700), rows)
    assert few.progress().seen == 700
    small = run(learner_for(rows, KERNEL, max_support=100), rows)
    assert small.progress().members <= 100
    assert small.progress().delta[0] <= 1e-3


def test_a_stopped_run_is_still_finished():
    rows = problem(4000)
    learner = learner_for(rows, KERNEL)
    run(learner, rows, watch=lambda progress, seconds: bool(learner.stop()) if progress.seen > 500 else False)
    assert learner.progress().seen < 4000
    assert learner.phase == "done"
    assert learner.progress().delta[0] <= 1e-3


def test_known_examples_are_not_members_twice():
    rows = problem(800)
    learner = run(learner_for(rows, KERNEL, epochs=3), rows)
    s = learner.expansion
    examples = s.example[np.flatnonzero(s.working.holders[: s.places])]
    assert len(examples) == len(set(examples.tolist()))


@hypothesis.settings(max_examples=25)
@hypothesis.given(
    n=st.integers(2, 120),
    d=st.integers(1, 4),
    c=st.sampled_from([1e-3, 0.5, 10.0, 1e4]),
    gamma=st.sampled_from([1e-3, 0.5, 50.0]),
    name=st.sampled_from(["linear", "rbf"]),
    seed=st.integers(0, 2**31),
    grid=st.booleans(),
)
def test_invariants_hold_on_any_problem(n, d, c, gamma, name, seed, grid):
    X, y = blobs(n, d, seed)
    X = np.round(X) if grid else X
    rows = Rows(X, y, np.full(n, c))
    learner = learner_for(rows, Kernel(name, gamma), epochs=2, seed=seed % 1000, tau=1e-3 * min(c, 1.0))
    duals = [0.0]
    waiting = learner.plans()
    while waiting:
        learner.take(execute(waiting.pop(0), learner, rows))
        waiting += learner.plans()
        if learner.phase == "online":
            learner.expansion.check(1e-7 * max(1.0, c))
        duals.append(float(learner.progress().dual[0]))
    assert np.all(np.diff(duals) >= -1e-7 * max(1.0, c))
    alpha = coefficients(learner, n)
    assert np.all(np.abs(alpha) <= c)
    assert abs(alpha.sum()) <= 1e-9 * max(1.0, np.abs(alpha).sum())


def shrinking(rows):
    """Return a learner that is finishing, with some members left out, and the plans it is waiting for."""
    learner = learner_for(rows, KERNEL, epochs=1, tau=1e-7, cache_bytes=25_000, reprocess=1)
    waiting = learner.plans()
    while waiting:
        if learner.finishing and learner.finishing[0].cache is not None:
            return learner
        learner.take(execute(waiting.pop(0), learner, rows))
        waiting += learner.plans()
    raise AssertionError("no member was left out")


def test_members_left_out_by_shrinking_get_exact_gradients_again(monkeypatch):
    rows = problem(450, dtype=np.float64)
    with one_thread():
        learner = shrinking(rows)
    now = learner.finishing[0]
    assert len(now.active) < finishing.SHRINK_SHARE * np.count_nonzero(now.member) + 1
    run(learner, rows)
    assert now.cache is None
    assert len(now.active) == len(now.g)
    exact = learner.expansion.exact_gradients(0, now.alpha)
    assert np.allclose(now.g[now.member], exact[now.member], atol=1e-10)
    top, bottom = now.extremes()
    assert top - bottom <= 1e-7
    assert now.dual == pytest.approx(
        0.5 * now.alpha @ (learner.expansion.working.sign[0, : len(exact)] + exact), rel=1e-12
    )
    monkeypatch.setattr(finishing, "SHRINK_SHARE", 0.0)
    whole = run(learner_for(rows, KERNEL, epochs=1, tau=1e-7, cache_bytes=25_000), rows)
    assert now.dual == pytest.approx(whole.progress().dual[0], rel=1e-10)
    assert np.allclose(coefficients(learner, 450), coefficients(whole, 450), atol=1e-4)


def test_snapshot_while_members_are_left_out():
    rows = problem(450, dtype=np.float64)
    learner = shrinking(rows)
    state = learner_state.state(learner)
    resumed = learner_state.restore(learner.settings, state)
    for one in (learner, resumed):
        run(one, rows)
    assert same(learner, resumed, 450)


def test_finishing_is_stuck_without_gain_or_smaller_violation():
    stall = finishing.StallDetector()
    assert not any(stall.record_round(False, 1.0 / (1 + n)) for n in range(200))
    # A gain may be smaller than the last bit of the dual.
    assert not any(stall.record_round(True, 1.0) for _ in range(200))
    again = finishing.StallDetector()
    again.restore(stall.state())
    assert [again.record_round(False, 1.0) for _ in range(finishing.STALLED + 1)] == [
        *[False] * finishing.STALLED,
        True,
    ]


@pytest.mark.parametrize("learner", LEARNERS.values())
def test_a_learner_inherits_from_one_learner_and_implements_what_it_inherits(learner):
    assert not inspect.isabstract(learner)
    for kind in learner.__mro__:
        assert sum(issubclass(base, Learner) for base in kind.__bases__) <= 1
        for method in vars(kind).values():
            assert not inspect.isfunction(method) or "NotImplementedError" not in method.__code__.co_names


def test_a_state_without_a_field_that_cannot_be_none_is_refused():
    stall = finishing.StallDetector()
    state = stall.state()
    del state["rounds"]
    with pytest.raises(KeyError, match="the state has no 'rounds'"):
        stall.restore(state)
