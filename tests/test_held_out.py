"""Finished copies on the way: what they are, and that nobody notices them."""

import numpy as np
import pytest

from dasksvm import Dataset, HeldOut, LaSVC, train
from dasksvm.runtime import CoordinatorLost
from dasksvm.runtime.coordinator import Coordinator
from tests.clusters import cluster, digest, noisy, quick, solver


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return noisy(tmp_path_factory.mktemp("data") / "noisy.zarr", rows=2000, chunk_rows=350)


def rows(count, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 6)).astype(np.float32)
    return X, (X[:, 0] + X[:, 1] ** 2 + 0.3 * rng.normal(size=count) > 1).astype(int)


def plain(entries):
    return [{name: value for name, value in entry.items() if name != "seconds"} for entry in entries]


@pytest.mark.parametrize(
    "parameters", [{}, {"selection": "active", "max_examples": 700}, {"cache_size": 1, "epochs": 2}]
)
def test_a_run_that_is_watched_is_the_same(parameters):
    X, y = rows(2500, 0)
    watched = HeldOut(*rows(300, 1), every=150)
    alone = solver(**parameters).fit(X, y)
    run = train((X, y), solver(**parameters), callbacks=[watched])
    assert digest(run.estimator) == digest(alone)
    online = [entry for entry in run.history if entry["phase"] != "intermediate"]
    assert plain(online) == plain(alone.history_)
    assert [entry for entry in run.history if entry["phase"] == "intermediate"] == watched.entries
    assert len(watched.entries) >= 4
    seconds = [entry["seconds"] for entry in online]
    assert seconds == sorted(seconds)


def test_a_copy_is_the_model_of_a_run_that_ends_there():
    X, y = rows(1500, 0)
    watched = HeldOut(*rows(2000, 1), every=500)
    train((X, y), solver(dtype="float64", tol=1e-6), callbacks=[watched])
    for entry in watched.entries:
        ended = solver(dtype="float64", tol=1e-6, max_examples=entry["seen"]).fit(X, y)
        assert entry["dual"] == pytest.approx(ended.dual_objective_, rel=1e-6)
        assert entry["support_vectors"] == len(ended.support_)
        assert entry["error"] == pytest.approx(1 - ended.score(*rows(2000, 1)), abs=1e-3)


def test_patience_ends_a_run_and_the_best_model_is_kept():
    X, y = rows(4000, 0)
    X_test, y_test = rows(500, 1)
    watched = HeldOut(X_test, y_test, every=100, patience=2)
    run = train((X, y), solver(), callbacks=[watched])
    errors = [entry["error"] for entry in watched.entries]
    assert run.history[-1]["seen"] < 4000
    assert int(np.argmin(errors)) == len(errors) - 3
    assert np.mean(watched.best.predict(X_test) != y_test) == pytest.approx(min(errors))


def test_two_who_watch_each_at_their_own_pace():
    X, y = rows(2000, 0)
    often, rarely = HeldOut(X[:200], y[:200], every=200), HeldOut(X[:200], y[:200], every=1000)
    train((X, y), solver(), callbacks=[often, rarely])
    assert len(often.entries) > len(rarely.entries) == 2


def test_each_training_begins_anew_and_far_from_zero_copies_are_right():
    X, y = rows(1500, 0)
    X_test, y_test = rows(400, 1)
    watched = HeldOut(X_test + 1e7, y_test, every=300, patience=4)
    first = train((X + 1e7, y), solver(), callbacks=[watched])
    found = plain(watched.entries)
    again = train((X + 1e7, y), solver(), callbacks=[watched])
    assert plain(watched.entries) == found
    assert len(again.history) == len(first.history)
    # The same numbers near zero: adding 1e7 has rounded them.
    near_zero = HeldOut(X_test + 1e7 - 1e7, y_test, every=300, patience=4)
    train((X + 1e7 - 1e7, y), solver(), callbacks=[near_zero])
    assert found[-1]["error"] == pytest.approx(near_zero.entries[-1]["error"], abs=0.05)


def test_held_out_rows_that_do_not_fit_are_refused_before_the_training(data):
    X, y = rows(60, 0)
    for held_out, message in [
        (HeldOut(X[:, :3], y), "3 features"),
        (HeldOut(X, y + 1), "not among the classes"),
        (HeldOut(data), "30 features"),
    ]:
        with pytest.raises(ValueError, match=message):
            train((X, y), solver(), callbacks=[held_out])
    with pytest.raises(ValueError, match="inconsistent"):
        HeldOut(X, y[:5])
    assert HeldOut(X, y[:, None]).y.shape == (60,)


@pytest.mark.parametrize(
    "parameters", [{"epochs": 2}, {"epochs": "converged", "tol": 1e-2}, {"selection": "active", "max_examples": 300}]
)
def test_a_watched_run_is_the_same_on_a_cluster(data, parameters, tmp_path):
    rng = np.random.default_rng(0)
    rest = rng.normal(size=(300, 30)), rng.choice(data.classes, 300)
    expected, watched = HeldOut(*rest, every=250, patience=3), HeldOut(*rest, every=250, patience=3)
    alone = train(data, solver(**parameters), callbacks=[expected])
    with cluster() as client:
        run = train(data, solver(**parameters), client=client, callbacks=[watched])
    assert digest(run.estimator) == digest(alone.estimator)
    assert plain(run.history) == plain(alone.history)
    assert run.estimator.kernel_evaluations_ == alone.estimator.kernel_evaluations_


def test_wrong_arguments_are_named(data):
    X, y = rows(20, 0)
    for arguments, message in [((X,), "y is required"), ((data, y), "must be None")]:
        with pytest.raises(ValueError, match=message):
            HeldOut(*arguments)
    with pytest.raises(ValueError, match="at least 1"):
        HeldOut(X, y, every=0)


def test_a_cluster_shows_the_same_copies_and_stops_at_the_same_place(data, monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    chance = Dataset.create(tmp_path / "chance.zarr", rng.normal(size=(300, 30)), rng.choice(data.classes, 300))
    model, options = LaSVC(C=3, selection="active", random_state=0), {"every": 100, "patience": 4}
    expected = HeldOut(chance.path, **options)
    alone = train(data, model, callbacks=[expected])
    assert alone.history[-1]["seen"] < len(data)
    advance, calls = Coordinator.advance, []

    def failing(self, turn):
        calls.append(turn)
        if len(calls) == 3:
            raise CoordinatorLost
        return advance(self, turn)

    with quick(), cluster() as client:
        for lost in (False, True):
            if lost:
                monkeypatch.setattr(Coordinator, "advance", failing)
            watched = HeldOut(chance.path, **options)
            run = train(data, model, client=client, callbacks=[watched])
            assert digest(run.estimator) == digest(alone.estimator)
            assert plain(watched.entries) == plain(expected.entries)
    assert len(calls) > 3
