"""The selection of the next example: the criteria, the pools, and runs that use them."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from dasksvm import LaSVC
from dasksvm.solver.engine.choice import group_ends
from dasksvm.solver.engine.selection import DRAWN, FREE, MOST_GROUPS, Pools, RandomOrder, Selection
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.messages import ScorePlan
from pipelines.curves import KEPT, above, mean_curve, read
from pipelines.rows import write
from pipelines.tasks import Task, split
from pipelines.tasks import noisy as with_noise
from tests.helpers import CHOOSING_CRITERIA, Rows, blobs, kernel_matrix, learner_for, run
from tests.test_learner import execute

KERNEL = Kernel("rbf", 0.2)


def problem(n=400, shift=0.3):
    X, y = blobs(n, seed=3, shift=shift)
    return X, Rows(X, y, np.full(n, 5.0))


def followed(learner, rows):
    """Run a learner one plan at a time, and yield each choice with the state in which the plan was made."""
    waiting = [*learner.plans()]
    while waiting:
        plan = waiting.pop(0)
        result = execute(plan, learner, rows)
        if isinstance(plan, ScorePlan) and plan.choice is not None:
            yield plan, result
        learner.take(result)
        waiting += learner.plans()


def decisions(learner, X, rows, at):
    """Compute ŷ and 1 + δ/2 from the coefficients and a kernel matrix, as paper 1 defines them (equations 2 and 10)."""
    s = learner.expansion
    live = np.flatnonzero(s.working.holders[: s.places])
    alpha, members = s.working.alpha[0, live], s.example[live]
    lower, upper = s.working.lower[0, live], s.working.upper[0, live]
    among = kernel_matrix("rbf", X[members], X[members], 0.2, 0, 0)
    g = rows.sign[members] - among @ alpha
    top, bottom = g[alpha < upper].max(), g[alpha > lower].min()
    values = kernel_matrix("rbf", X[at], X[members], 0.2, 0, 0) @ alpha
    return values + (top + bottom) / 2, 1 + (top - bottom) / 2


@pytest.mark.parametrize("criterion", CHOOSING_CRITERIA)
def test_each_exact_choice_is_that_of_the_paper(criterion):
    X, rows = problem()
    learner = learner_for(rows, KERNEL, selection=Selection(criterion, 20, exact=True), max_examples=100)
    chosen = 0
    for plan, result in followed(learner, rows):
        decision, near = decisions(learner, X, rows, plan.rows)
        pool = len(plan.rows)
        if criterion == "autoactive":
            close = np.flatnonzero(np.abs(decision) < near)
            pool = min(close[4] + 1 if len(close) >= 5 else pool, 40)
        measure = decision * rows.sign[plan.rows] if criterion == "gradient" else np.abs(decision)
        assert result.examples.tolist() == [plan.rows[:pool][np.argmin(measure[:pool])]]
        assert result.sampled == pool
        chosen += 1
    assert chosen == learner.seen == 100


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("criterion", CHOOSING_CRITERIA)
def test_an_epoch_chooses_every_example_once(criterion, exact):
    _, rows = problem(100)
    learner = learner_for(rows, KERNEL, selection=Selection(criterion, 20, exact), epochs=2)
    chosen: list[list[int]] = [[], []]
    for _, result in followed(learner, rows):
        chosen[learner.epoch] += result.examples.tolist()
    seeds = set(learner.seeds.tolist())
    assert sorted(chosen[0]) == sorted(set(range(100)) - seeds)
    assert len(chosen[1]) == len(set(chosen[1]))
    assert 0 < len(chosen[1]) < 90
    assert learner.seen == len(chosen[0]) + len(chosen[1])


def test_batches_keep_the_lookahead_in_flight_and_never_draw_an_example_twice():
    _, rows = problem(500)
    learner = learner_for(rows, KERNEL, selection=Selection("active", 10))
    waiting = learner.plans()
    while waiting and learner.phase in ("seeding", "online"):
        drawn = [plan.rows for plan in waiting if plan.choice is not None]
        together = np.concatenate([np.zeros(0, np.int64), *drawn])
        assert len(np.unique(together)) == len(together) == np.count_nonzero(learner.pools.status == DRAWN)
        if learner.phase == "online" and learner.pools.free:
            assert len(waiting) == learner.settings.lookahead
        learner.take(execute(waiting.pop(0), learner, rows))
        waiting += learner.plans()
    assert np.all(learner.pools.status == 2)


@hypothesis.given(st.lists(st.booleans(), max_size=60), st.integers(1, 12), st.integers(1, 5), st.integers(1, 8))
def test_groups_end_when_they_are_full_or_have_enough_close_examples(close, size, enough, groups):
    ends, start = [], 0
    while len(ends) < groups and start < len(close):
        for stop in range(start + 1, len(close) + 1):
            if stop - start == size or sum(close[start:stop]) == enough:
                break
        else:
            break
        ends.append(stop)
        start = stop
    assert group_ends(np.array(close, np.bool_), size, enough, groups).tolist() == ends


@hypothesis.given(st.integers(1, 300), st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(0, 5))
def test_pools_contain_the_unprocessed_examples(count, sizes, seed):
    pools = Pools(RandomOrder((count // 2, count - count // 2), seed, base=7), Selection("active", 10))
    out = np.arange(7, 7 + count // 3)
    pools.begin(out)
    rng = np.random.default_rng(seed)
    left = set(range(7, 7 + count)) - set(out.tolist())
    for size in sizes:
        rows = pools.draw(size)
        assert len(rows) == min(size, len(left))
        assert set(rows.tolist()) <= left
        if not len(rows):
            break
        chosen = rng.choice(rows, 1)
        pools.put_back(rows, chosen, len(rows))
        left -= set(chosen.tolist())
        assert pools.free == len(left) == np.count_nonzero(pools.status == FREE)


def test_batches_follow_the_drift_up_to_a_limit():
    pools = Pools(RandomOrder((1000,), 0), Selection("active", 10))
    for _ in range(10):
        pools.adapt_batch_size(np.full(4, 0.01), 10**9, 1e12, 1)
    assert pools.groups == MOST_GROUPS
    for _ in range(10):
        pools.adapt_batch_size(np.array([-9.0, 9.0, 9.0]), 10**9, 1e12, 1)
    assert pools.groups == 1
    for _ in range(10):
        pools.adapt_batch_size(np.full(4, 0.01), 200, 1e12, 2)
    assert pools.groups == 20
    pools.adapt_batch_size(np.full(4, 0.01), 200, 210.0, 2)
    assert pools.groups == 7


def test_candidates_in_flight_keep_to_the_budget():
    _, rows = problem(1500)
    learner = learner_for(rows, KERNEL, selection=Selection("active", 50), inflight_bytes=50_000, max_examples=300)
    sizes = [len(plan.rows) for plan, _ in followed(learner, rows)]
    assert max(sizes) <= 2 * 50
    assert learner.seen == 300


@pytest.mark.parametrize("criterion", CHOOSING_CRITERIA)
def test_selection_converges_to_the_same_optimum(criterion):
    _, rows = problem(200)
    plain = run(learner_for(rows, KERNEL, epochs=0, tau=1e-5), rows)
    chosen = run(learner_for(rows, KERNEL, epochs=0, tau=1e-5, selection=Selection(criterion, 20)), rows)
    assert chosen.converged
    assert chosen.progress().dual[0] == pytest.approx(plain.progress().dual[0], rel=1e-7)


def noisy(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)).astype(np.float32)
    return X, np.where(X[:, 0] * X[:, 1] + 0.5 * X[:, 2] > 0, "a", "b")


def test_active_selection_beats_random_with_as_many_examples():
    X, y = noisy(8000, 0)
    X_test, y_test = noisy(4000, 1)
    errors = {
        criterion: np.mean(
            [
                1
                - LaSVC(C=10, selection=criterion, max_examples=300, random_state=seed).fit(X, y).score(X_test, y_test)
                for seed in range(3)
            ]
        )
        for criterion in ("random", "active")
    }
    assert errors["active"] < 0.8 * errors["random"]


def test_gradient_selection_prefers_wrong_labels_and_active_does_not_see_them():
    X, y = noisy(4000, 0)
    flipped = np.random.default_rng(1).random(4000) < 0.1
    y = np.where(flipped, np.where(y == "a", "b", "a"), y)
    shares = {}
    for criterion in ("gradient", "active"):
        model = LaSVC(C=10, selection=criterion, max_examples=300, random_state=0).fit(X, y)
        shares[criterion] = flipped[model.support_].mean()
    assert shares["gradient"] > 1.5 * shares["active"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"selection": "best"}, "selection"), ({"candidates": 0}, "candidates"), ({"candidates": 2.5}, "candidates")],
)
def test_parameters_are_checked(parameters, message):
    X, y = noisy(50, 0)
    with pytest.raises(ValueError, match=message):
        LaSVC(**parameters).fit(X, y)


def test_blocks_without_anything_that_can_enter():
    X, y = noisy(300, 0)
    model = LaSVC(selection="active", class_weight={"a": 0, "b": 1}, random_state=0)
    model.partial_fit(X[y == "a"], y[y == "a"], classes=["a", "b"])
    assert len(model.support_) == 0


def test_weight_zero_never_enters_and_partial_fit_chooses_within_its_block():
    X, y = noisy(400, 0)
    weight = np.ones(400)
    weight[::3] = 0
    model = LaSVC(selection="active", random_state=0).fit(X, y, weight)
    assert np.all(model.support_ % 3 != 0)
    model = LaSVC(selection="active", candidates=10, random_state=0)
    for start in (0, 200):
        model.partial_fit(X[start : start + 200], y[start : start + 200], classes=["a", "b"])
    assert model.score(X, y) > 0.9
    assert model.support_.max() >= 200


def test_curves_are_compared_run_by_run(tmp_path):
    path = tmp_path / "rows.jsonl"
    for seed, (exact, errors) in enumerate([(0.10, (0.30, 0.12)), (0.20, (0.40, 0.22, 0.21))]):
        curve = [dict.fromkeys(KEPT, 1.0) | {"error": error, "seen": 100.0 * at} for at, error in enumerate(errors)]
        write(path, {"pipeline": "curves", "solver": "sklearnex", "seed": seed, "error": exact})
        write(path, {"pipeline": "curves", "solver": "active", "seed": seed, "curve": curve})
    runs, exact = read(path, solver="active"), read(path, solver="sklearnex")
    more, spread = above(runs, exact)
    assert more == pytest.approx([0.20, 0.02])
    assert spread == pytest.approx([0, 0], abs=1e-12)
    assert mean_curve(runs)["error"] == pytest.approx([0.35, 0.17])


def test_splits_and_noise_match_their_names():
    X, y = noisy(300, 0)
    signs = np.where(y == "a", 1, -1)
    task = Task("made", X[:200], signs[:200], X[200:], signs[200:], {})
    divided = split(task, 1)
    assert len(divided.X) == 200
    assert sorted(np.concatenate([divided.X, divided.X_test])[:, 0]) == sorted(X[:, 0])
    turned = with_noise(task, 0.1, 0)
    assert 5 <= np.sum(turned.y != task.y) <= 35
    assert np.array_equal(turned.y_test, task.y_test)
