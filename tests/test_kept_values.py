"""Kernel values that the block engine keeps: the budget changes time, never the model."""

import copy

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dasksvm import LaSVC, train
from dasksvm.config.blas import one_thread
from dasksvm.solver.blocks.expansion import BlockExpansion
from dasksvm.solver.blocks.keeping import EXPENSIVE, can_keep
from dasksvm.solver.blocks.kept_rows import IDLE_ROUNDS, SPARE_PART, KeptRows
from dasksvm.solver.blocks.learner import BlocksSettings
from dasksvm.solver.decomposition.intake import view_for_intake
from dasksvm.solver.engine import learner_state
from dasksvm.solver.engine.choice import execute
from dasksvm.solver.engine.learners import make_learner
from dasksvm.solver.engine.selection import RandomOrder
from dasksvm.solver.kernels import uniform
from dasksvm.solver.kernels.features import DenseFeatures
from dasksvm.solver.kernels.kernel import DENSE_FEATURE, SPARSE_FEATURE, VALUE, Kernel
from dasksvm.solver.kernels.registry import KERNELS
from dasksvm.solver.kernels.uniform import SHAPES, STRIP, VARYING, fill_uniformly, is_uniform, shape_of_tiles
from dasksvm.solver.memory import Workspace
from dasksvm.solver.messages import ScorePlan
from dasksvm.training.local_executor import LocalExecutor
from tests.clusters import cluster, digest
from tests.helpers import COMMON, Rows, run

# Wide enough for values to be expensive.
WIDTH = 250


def features(rows, width, dtype=np.float32, sparse=False, seed=0):
    values = np.random.default_rng(seed).normal(size=(rows, width)).astype(dtype)
    if not sparse:
        return DenseFeatures.of(values)
    values[np.random.default_rng(1).random(values.shape) < 0.8] = 0
    return Rows(sp.csr_matrix(values), np.ones(rows), np.ones(rows), dtype).features(np.arange(rows))


def wide(n=900, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, WIDTH)) / np.sqrt(WIDTH)
    X[:, :3] *= 12.0
    return X, np.digitize(X[:, 0] + X[:, 1] ** 2 + 0.2 * rng.normal(size=n), [0.3, 1.0][: classes - 1])


# Uniform tiles


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", list(KERNELS))
def test_a_value_has_the_same_bits_wherever_it_stands(name, dtype, sparse):
    """Also K(x, x') and K(x', x); where the BLAS in use does not allow that, no value may be kept."""
    given, kernel = features(600, WIDTH, dtype, sparse), Kernel(name, 1 / WIDTH, 0.5, 2)
    with one_thread():
        if not shape_of_tiles(kernel, given).uniform:
            assert not can_keep(kernel, given)
            return
        whole = np.empty((600, 600), dtype)
        fill_uniformly(kernel, given, given, whole, Workspace())
        np.testing.assert_array_equal(whole, whole.T)
        rng = np.random.default_rng(2)
        for rows, columns in ((1, 1), (3, 600), (47, 255), (48, 256), (500, 13), (481, 257)):
            at, of = rng.permutation(600)[:rows], rng.permutation(600)[:columns]
            part = np.empty((rows, columns), dtype)
            fill_uniformly(kernel, given.take(at), given.take(of), part, Workspace())
            np.testing.assert_array_equal(part, whole[np.ix_(at, of)])


def test_a_shape_is_refused_if_the_order_of_additions_depends_on_the_place(monkeypatch):
    def edged(left, right, border, multiple):
        """A product that is rounded differently in the first and last columns, and in rows beyond a multiple."""
        product = (left.astype(np.float64) @ right.astype(np.float64)).astype(np.float32)
        product[:, :border] *= np.float32(1 + 1e-6)
        product[:, product.shape[1] - border :] *= np.float32(1 + 1e-6)
        product[len(product) - len(product) % multiple :] *= np.float32(1 + 1e-6)
        return product

    kind = np.dtype(np.float32)
    for border, multiple, fits in ((0, 16, SHAPES[0]), (8, 16, SHAPES[1]), (0, 12, SHAPES[1]), (9, 1, VARYING)):
        uniform._shape_of_products.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(uniform.np, "matmul", lambda a, b, border=border, m=multiple: edged(a, b, border, m))
            assert shape_of_tiles(Kernel("rbf"), features(2, 40)) == fits
    uniform._shape_of_products.cache_clear()
    with one_thread():
        assert shape_of_tiles(Kernel("rbf"), features(2, 40)) in (*SHAPES, VARYING)
        assert is_uniform(SHAPES[0], 1, kind), "a product of two numbers has no order"


# Kept rows


@given(st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_pages_hold_what_was_written_until_they_are_dropped(seed):
    """Rows are allocated, dropped and moved to other columns at random, and compared with a dictionary."""
    rng = np.random.default_rng(seed)
    budget = int(rng.integers(0, 40))
    kept = KeptRows(budget * STRIP * 8, np.dtype(np.float64))
    columns = rng.integers(1, 1000, 1)[0]
    names = rng.permutation(10**6)[:columns]  # of the columns
    for _ in range(8):
        kept.round += int(rng.integers(1, IDLE_ROUNDS))
        kept.make_room(30, -(-len(names) // STRIP))
        places = rng.permutation(30)[: rng.integers(1, 12)]
        given = kept.allocate(places, len(names))
        for strip, at in zip(*np.nonzero(given >= 0), strict=True):
            own = names[strip * STRIP : (strip + 1) * STRIP]
            kept.pages[given[strip, at], : len(own)] = places[at] * 1e6 + own
        kept.mark_filled(given, len(names))
        match rng.integers(3):
            case 0:
                gone = rng.permutation(30)[:5]
                kept.drop(gone)
                assert np.all(kept.find(gone, len(names)) < 0)
            case 1:
                source = rng.permutation(len(names))[: rng.integers(1, len(names) + 1)]
                source = np.concatenate([np.sort(source), np.full(rng.integers(0, 300), -1)])
                kept.rearrange(source, len(names), lambda work, count, least: work((0, count)))
                new = rng.integers(10**6, 2 * 10**6, len(source))
                names = np.where(source >= 0, names[source], new)
                kept.make_room(30, -(-len(names) // STRIP))
            case 2:
                names = np.concatenate([names, rng.integers(10**6, 2 * 10**6, rng.integers(0, 300))])
                kept.make_room(30, -(-len(names) // STRIP))
        found = kept.find(np.arange(30), len(names))
        used = found[found >= 0]
        assert len(np.unique(used)) == len(used) <= budget
        for strip, place in zip(*np.nonzero(found >= 0), strict=True):
            own = names[strip * STRIP : (strip + 1) * STRIP]
            np.testing.assert_array_equal(kept.pages[found[strip, place], : len(own)], place * 1e6 + own)


def test_spare_memory_is_given_whole_or_not_at_all():
    kept = KeptRows(SPARE_PART * 3 * STRIP * 8, np.dtype(np.float64))
    kept.make_room(9, 2)
    kept.mark_filled(kept.allocate(np.array([0, 1]), 100), 100)
    strips, missing = np.array([1]), np.array([[True, True]])
    assert np.all(kept.allocate_spare(np.array([0, 1]), strips, missing) < 0)
    missing[0, 1] = False
    assert (kept.allocate_spare(np.array([0, 1]), strips, missing) >= 0).tolist() == [[True, False]]


def test_what_a_row_lacks_is_copied_for_all_rows_of_its_strip():
    """The rows of members that come later have what those of older ones lack; strips have members of one class."""
    s = members(3 * STRIP)
    kernel_values, count = s.kernel_values, 3 * STRIP
    with one_thread():
        old, new = np.arange(count) >= STRIP, np.arange(STRIP)
        kernel_values.begin_round(s, old)
        kernel_values.complete(s, np.arange(STRIP, 2 * STRIP))
        kernel_values.begin_round(s, np.ones(count, np.bool_))
        kernel_values.complete(s, new)
        computed = s.evaluations
        kernel_values.complete(s, np.array([STRIP]))
        assert s.evaluations == computed
        kept, rows = kernel_values.kept, np.arange(STRIP, 2 * STRIP, 2)
        assert np.any(kept.find(rows + 1, count) < 0)
        pages = kept.find(rows, count)
        assert np.all(pages >= 0)
        whole = np.empty((count, count), np.float32)
        fill_uniformly(s.kernel, s.members(), s.members(), whole, Workspace())
        for strip in range(3):
            columns = kernel_values.columns[strip * STRIP : (strip + 1) * STRIP]
            np.testing.assert_array_equal(kept.pages[pages[strip]], whole[np.ix_(rows, columns)])


def members(count):
    """An expansion with some members, and a kernel whose values are kept with every BLAS because it needs none."""
    s = BlockExpansion(Kernel("laplacian", 1 / WIDTH), 1, 1 << 26)
    rows = Rows(wide(count)[0].astype(np.float32), np.resize([-1.0, 1.0], count), np.ones(count), np.float32)
    ids = np.arange(count)
    plan = ScorePlan(0, ids, view_for_intake(0, 1))
    result = execute(plan, s.kernel, rows.features(ids), rows.targets(ids), Workspace())
    s.make_room(result)
    s.add_members(result, result.sign, np.ones((1, count), np.bool_), np.full(count, -1))
    return s


def test_idle_rows_make_room():
    kept = KeptRows(2 * STRIP * 8, np.dtype(np.float64))
    kept.make_room(9, 1)
    for place, wanted in ((0, True), (1, True), (2, False)):
        given = kept.allocate(np.array([place]), 100)
        assert (given >= 0).all() == wanted
        kept.mark_filled(given, 100)
    kept.round += IDLE_ROUNDS
    kept.allocate(np.array([1]), 100)  # it is used
    kept.round += 1
    kept.mark_filled(kept.allocate(np.array([2]), 100), 100)
    assert [bool((kept.find(np.array([p]), 100) >= 0).all()) for p in range(3)] == [False, True, True]


# The model


def learner_with(budget, rows, **options):
    values = {"tau": 1e-3, "batch": 150, "working_set": 60, "kernel": Kernel("rbf", 0.05), "cache_bytes": budget}
    learner = make_learner(BlocksSettings(**(COMMON | values | options)))
    order = RandomOrder((len(rows.sign),), 0)
    ids = order.rows(0, 0, len(rows.sign))
    learner.feed(order, np.concatenate([ids[rows.sign[ids] == label][:5] for label in (-1, 1)]))
    return learner


def solution(learner):
    return [each.tobytes() for each in learner.solution()]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_budget_changes_no_bit(dtype, sparse):
    """None, a few pages, some rows, and all; the values are kept, used again, and those of scoring are used."""
    X, y = wide()
    rows = Rows(sp.csr_matrix(X) if sparse else X, np.where(y > 0, 1, -1), np.full(len(y), 3.0), dtype)
    found, computed, kept = [], [], []
    for budget in (0, 20 << 10, 300 << 10, 50 << 20):
        learner = learner_with(budget, rows, epochs=2)
        run(learner, rows)
        learner.expansion.check(1e-3)
        found.append(solution(learner))
        computed.append(learner.progress().evaluations)
        values = learner.expansion.kernel_values
        kept.append(None if values.kept is None else values.kept.fresh)
    assert all(each == found[0] for each in found)
    if not can_keep(learner.settings.kernel, learner.expansion.members()):
        assert not any(kept), "where values vary from tile to tile, none may be kept"
        return
    assert computed[0] > computed[1] > computed[2] > computed[3]
    assert kept[0] == 0 < kept[1] <= 20
    assert kept[3] > kept[2]


def test_no_member_has_two_columns():
    """Members leave, and others take their places; a column without its member is used no more."""
    X, y = wide()
    rows = Rows(X, np.where(y > 0, 1, -1), np.full(len(y), 3.0), np.float32)
    learner = learner_with(50 << 20, rows, epochs=2)
    reused = []

    def watch(progress, seconds):
        s, values = learner.expansion, learner.expansion.kernel_values
        if values.kept is not None:
            valid = values._valid(s, s.working.member[:, : s.places].any(axis=0))
            used = values.columns[valid]
            assert len(np.unique(used)) == len(used)
            reused.append(len(np.unique(values.columns)) < len(values.columns))
        return False

    run(learner, rows, watch=watch)
    assert any(reused) or learner.expansion.kernel_values.kept is None, "no place was to be taken again"


@pytest.mark.parametrize("shape", ["ovr", "ovo"])
def test_the_budget_changes_no_bit_of_several_problems(shape):
    X, y = wide(classes=3)
    options = {"C": 3.0, "gamma": 0.05, "decision_function_shape": shape, "engine": "blocks", "random_state": 0}
    models = [
        LaSVC(cache_size=size, epochs=epochs, **options).fit(X, y) for epochs in (1, 2) for size in (0.01, 1, 100)
    ]
    assert len({digest(model) for model in models[:3]}) == 1
    assert len({digest(model) for model in models[3:]}) == 1


@pytest.mark.parametrize("when", ["online", "finishing"])
def test_a_run_that_is_resumed_gives_the_same_model(when):
    """A snapshot has no kept values: they are computed again."""
    X, y = wide()
    rows = Rows(X, np.where(y > 0, 1, -1), np.full(len(y), 3.0), np.float32)
    whole = learner_with(50 << 20, rows)
    run(whole, rows)
    halted = learner_with(50 << 20, rows)
    states = []

    def watch(progress, seconds):
        if progress.phase == when and progress.seen > 500:
            states.append(copy.deepcopy(learner_state.state(halted)))
        return False

    run(halted, rows, watch=watch)
    assert states
    for state in states[:: max(len(states) // 3, 1)]:
        resumed = learner_state.restore(whole.settings, state)
        LocalExecutor(resumed, rows, 1).run(lambda progress, seconds: False)
        assert solution(resumed) == solution(whole)


def test_the_model_is_the_same_on_any_number_of_workers():
    """Workers do not send the rows that the local executor hands on."""
    X, y = wide(classes=3)
    solver = LaSVC(C=3.0, gamma=0.05, engine="blocks", epochs=2, random_state=0)
    chunks = da.from_array(X, chunks=(300, WIDTH))
    found = {digest(train((chunks, y), solver).estimator)}
    for workers in (1, 2):
        with cluster(workers) as client:
            found.add(digest(train((chunks, y), solver, client=client).estimator))
    assert len(found) == 1


def test_a_fitted_estimator_keeps_no_kernel_values():
    X, y = wide()
    model = LaSVC(C=3.0, gamma=0.05, engine="blocks", random_state=0).fit(X, y)
    assert model._running[0].expansion.kernel_values.kept is None
    once = digest(model.partial_fit(X[:300], y[:300]))
    assert once == digest(
        LaSVC(C=3.0, gamma=0.05, engine="blocks", random_state=0).fit(X, y).partial_fit(X[:300], y[:300])
    )


# What is kept


def test_the_cost_decides_at_its_border():
    kernel = Kernel("rbf", 0.1)
    border = round((EXPENSIVE - VALUE) / DENSE_FEATURE)
    with one_thread():
        narrow, broad = (can_keep(kernel, features(4, width)) for width in (border, border + 1))
        uniform_here = shape_of_tiles(kernel, features(4, border + 1)).uniform
    assert (narrow, broad) == (False, uniform_here)
    laplacian = Kernel("laplacian", 0.1)
    assert laplacian.seconds(features(4, 100)) > kernel.seconds(features(4, 100))


def test_sparse_rows_cost_what_their_values_cost():
    kernel = Kernel("rbf", 0.1)
    given = features(50, 1000, sparse=True)
    assert kernel.seconds(given) == pytest.approx(VALUE + SPARSE_FEATURE * len(given.data) / 50)
    few = features(50, 20, sparse=True)
    assert can_keep(kernel, given)
    assert not can_keep(kernel, few)
