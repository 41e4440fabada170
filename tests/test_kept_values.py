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
from dasksvm.runtime import worker_tasks
from dasksvm.solver.blocks import pieces
from dasksvm.solver.blocks.expansion import BlockExpansion
from dasksvm.solver.blocks.keeping import EXPENSIVE, can_keep
from dasksvm.solver.blocks.kept_tiles import KeptTiles, add_rows, gather_squares, mirror, put_rows
from dasksvm.solver.blocks.kernel_values import KnownRows
from dasksvm.solver.blocks.learner import BlocksSettings
from dasksvm.solver.decomposition.intake import view_for_intake
from dasksvm.solver.engine import learner_state, tiles
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


# Kept tiles


def tile_bytes(dtype):
    return STRIP * STRIP * np.dtype(dtype).itemsize


@pytest.mark.parametrize("count", [0, 1, 3, 6, 7, 9, 10, 13, 16, 40])
def test_tiles_hold_the_values_of_the_members_that_places_have_now(count):
    """Members come, leave, and give their places to others; all that is read is compared with a matrix."""
    rng = np.random.default_rng(count)
    everything = rng.normal(size=(4000, 4000)).astype(np.float32)
    everything += everything.T
    kept = KeptTiles(count * tile_bytes(np.float32), np.dtype(np.float32))
    strips = kept.places // STRIP
    assert strips * (strips + 1) // 2 <= count < (strips + 1) * (strips + 2) // 2
    who, arrived = np.zeros(0, np.int64), 0
    for size in (10, 400, 300, 800, 1000):
        who = np.concatenate([who, np.full(max(size - len(who), 0), -1)])
        who[rng.permutation(len(who))[:100]] = -1
        empty = np.flatnonzero(who < 0)
        empty = empty[rng.random(len(empty)) < 0.9]
        who[empty] = arrived + rng.permutation(len(empty))
        arrived += len(empty)
        live = np.flatnonzero(who >= 0)
        new = kept.take_new(live, who)
        assert not len(kept.take_new(live, who))
        for strip in range(min(-(-len(who) // STRIP), strips)):
            columns = np.arange(strip * STRIP, (strip + 1) * STRIP)
            of = np.where(columns < len(who), who[np.minimum(columns, len(who) - 1)], 0)
            put_rows(kept.tiles, kept.lower, strip, new, everything[np.ix_(who[new], of)], 0)
        check_squares(kept, live[rng.random(len(live)) < 0.5], who, everything)
        check_sums(kept, live[rng.random(len(live)) < 0.3], who, everything, rng)


def check_squares(kept, places, who, everything):
    """Compare two squares, of all places and of some of them."""
    chosen = [places, places[::3]]
    inside = np.array([np.count_nonzero(each < kept.places) for each in chosen])
    sizes = np.array([len(each) for each in chosen])
    offsets = np.concatenate([[0], np.cumsum(sizes**2)])
    flat = np.full(offsets[-1], np.nan, np.float32)
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    for strip in range(-(-min(len(who), kept.places) // STRIP)):
        gather_squares(kept.tiles, strip, np.concatenate(chosen), bounds, inside, offsets, flat)
    for k, each in enumerate(chosen):
        square = flat[offsets[k] : offsets[k + 1]].reshape(sizes[k], sizes[k])
        mirror(square, inside[k])
        known = who[each[: inside[k]]]
        np.testing.assert_array_equal(square[: inside[k], : inside[k]], everything[np.ix_(known, known)])


def check_sums(kept, places, who, everything, rng):
    """Compare sums with those from computed rows, bit for bit, and with a matrix product."""
    places = places[places < kept.places]
    amounts = rng.normal(size=(3, len(places))) * (rng.random((3, len(places))) < 0.6)
    concerned, scratch = np.array([True, False, True]), np.empty((STRIP, STRIP), np.float32)
    for strip in range(-(-min(len(who), kept.places) // STRIP)):
        columns = np.arange(strip * STRIP, min((strip + 1) * STRIP, len(who)))
        rows = np.zeros((len(places), 8 + STRIP + 8), np.float32)
        rows[:, 8 : 8 + len(columns)] = everything[np.ix_(who[places], who[columns])]
        found, again = np.zeros((3, STRIP)), np.zeros((3, STRIP))
        common = (kept.tiles, kept.lower)
        add_rows(*common, kept.places, strip, places, amounts, rows[:0], 0, concerned, scratch, found)
        add_rows(*common, 0, strip, places, amounts, rows, 8, concerned, scratch, again)
        live = who[columns] >= 0
        np.testing.assert_array_equal(found[:, : len(columns)][:, live], again[:, : len(columns)][:, live])
        expected = amounts @ everything[np.ix_(who[places], who[columns])].astype(np.float64)
        expected[1] = 0.0
        np.testing.assert_allclose(found[:, : len(columns)][:, live], expected[:, live], atol=1e-9)


def test_values_above_the_diagonal_give_way_to_those_below():
    """Ten tiles are enough for four strips: as long as there are three, some of the others are kept as well."""
    kept = KeptTiles(10 * tile_bytes(np.float64), np.dtype(np.float64))
    for strips, lower in ((1, 1), (3, 6), (4, 10), (6, 10)):
        places = np.arange(strips * STRIP)
        kept.take_new(places, places)
        assert (kept.places, kept.lower) == (4 * STRIP, lower)


@given(st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_values_that_are_known_are_kept_like_computed_ones(seed):
    """Some columns of the rows are known; some of these belong to members that are none any more."""
    rng, count = np.random.default_rng(seed), 700
    s, old, whole = members(count), np.arange(count) >= 200, np.empty((count, count), np.float32)
    s.working.holders[:count] = old
    with one_thread():
        fill_uniformly(s.kernel, s.members(), s.members(), whole, Workspace())
        s.kernel_values.begin_round(s)
        s.working.holders[:count] = True
        new = np.flatnonzero(rng.random(200) < 0.3)
        columns = np.sort(rng.permutation(count)[: rng.integers(1, count)])
        lines, numbers = rng.permutation(len(new)), s.arrival[columns].copy()
        values = np.empty((len(new), len(columns)), np.float32)
        values[lines] = whole[np.ix_(new, columns)]
        gone = rng.random(len(columns)) < 0.2
        values[:, gone], numbers[gone] = np.nan, -2
        s.kernel_values.keep_known(s, KnownRows(new, lines, columns, numbers, values))
        s.kernel_values.begin_round(s)
        (square,) = s.kernel_values.squares(s, [np.arange(count)])
    np.testing.assert_array_equal(square, whole)


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
    """None, those of a strip, of more, and all; the values are kept, used again, and those of scoring are used."""
    X, y = wide(2400)
    rows = Rows(sp.csr_matrix(X) if sparse else X, np.where(y > 0, 1, -1), np.full(len(y), 3.0), dtype)
    found, computed, kept = [], [], []
    for count in (0, 1, 4, 100):
        budget = count * tile_bytes(dtype)
        learner = learner_with(budget, rows, epochs=2)
        run(learner, rows)
        learner.expansion.check(1e-3)
        found.append(solution(learner))
        computed.append(learner.progress().evaluations)
        values = learner.expansion.kernel_values
        kept.append(None if values.kept is None else values.kept.places)
    assert all(each == found[0] for each in found)
    if not can_keep(learner.settings.kernel, learner.expansion.members()):
        assert not any(kept), "where values vary from tile to tile, none may be kept"
        return
    assert computed[0] > computed[1] > computed[2] > computed[3]
    assert kept == [0, STRIP, 2 * STRIP, 13 * STRIP]


@pytest.mark.parametrize("shape", ["ovr", "ovo"])
def test_the_budget_changes_no_bit_of_several_problems(shape):
    X, y = wide(classes=3)
    options = {"C": 3.0, "gamma": 0.05, "decision_function_shape": shape, "engine": "blocks", "random_state": 0}
    models = [
        LaSVC(cache_size=size, epochs=epochs, **options).fit(X, y) for epochs in (1, 2) for size in (0.01, 1, 2, 100)
    ]
    assert len({digest(model) for model in models[:4]}) == 1
    assert len({digest(model) for model in models[4:]}) == 1


def check_resumed_runs(make, rows, condition):
    """Compare a whole run with runs that resume from its states at the times at which a condition holds."""
    whole, states = make(), []

    def watch(progress, seconds):
        if condition(progress):
            states.append(copy.deepcopy(learner_state.state(whole)))
        return False

    run(whole, rows, watch=watch)
    assert states
    for state in states[:: max(len(states) // 3, 1)]:
        resumed = learner_state.restore(whole.settings, state)
        LocalExecutor(resumed, rows, 1).run(lambda progress, seconds: False)
        assert solution(resumed) == solution(whole)


@pytest.mark.parametrize("when", ["online", "finishing"])
def test_a_run_that_is_resumed_gives_the_same_model(when):
    """A snapshot has no kept values: they are computed again."""
    X, y = wide()
    rows = Rows(X, np.where(y > 0, 1, -1), np.full(len(y), 3.0), np.float32)
    check_resumed_runs(
        lambda: learner_with(50 << 20, rows), rows, lambda progress: progress.phase == when and progress.seen > 500
    )


def test_the_model_is_the_same_on_any_number_of_workers(monkeypatch):
    """Workers on other machines do not send the rows that the local executor and workers on this machine hand on."""
    X, y = wide(classes=3)
    solver = LaSVC(C=3.0, gamma=0.05, engine="blocks", epochs=2, random_state=0)
    chunks = da.from_array(X, chunks=(300, WIDTH))
    here = train((chunks, y), solver).estimator
    for workers in (1, 2):
        for near in (True, False):
            with monkeypatch.context() as patch, cluster(workers) as client:
                if not near:
                    patch.setattr(worker_tasks, "is_on_this_machine", lambda coordinator: False)
                there = train((chunks, y), solver, client=client).estimator
            assert digest(there) == digest(here)
            if can_keep(here.model_.kernel, features(9, WIDTH)):
                assert (there.kernel_evaluations_ == here.kernel_evaluations_) == near


@pytest.mark.parametrize("epochs", [2, 0])
def test_rows_that_do_not_come_with_results_change_no_bit(monkeypatch, epochs):
    """Those that are too large do not come, and from other machines none. Sums are made of several blocks."""
    monkeypatch.setattr(pieces, "COLUMNS", 40)
    X, y = wide()
    rows = Rows(X, np.where(y > 0, 1, -1), np.full(len(y), 3.0), np.float32)
    found, computed = [], []
    for most_bytes in (tiles.MOST_BYTES, 50_000, 0):
        monkeypatch.setattr(tiles, "MOST_BYTES", most_bytes)
        learner = learner_with(50 << 20, rows, epochs=epochs)
        run(learner, rows)
        found.append(solution(learner))
        computed.append(learner.progress().evaluations)
    assert all(each == found[0] for each in found)
    if can_keep(learner.settings.kernel, learner.expansion.members()):
        assert computed[0] <= computed[1] <= computed[2]
        assert computed[0] < computed[2]


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
