"""Training on clusters in this process: the model of local.py, whatever the cluster."""

import gc
import logging
import sys
import threading
import time
import warnings
from dataclasses import replace

import dask.array as da
import dask.config
import numpy as np
import pytest
from distributed import Client, LocalCluster, Scheduler, SpecCluster, Worker
from sklearn.base import clone

from dasksvm import Dataset, HeldOut, train
from dasksvm.data import stored
from dasksvm.runtime import CoordinatorLost, coordinator, local_cluster, workers_of
from dasksvm.runtime.client import use_client
from dasksvm.runtime.cluster import ask_scheduler
from dasksvm.runtime.coordinator import Coordinator
from dasksvm.solver.lasvm import steps
from dasksvm.training.snapshots import Snapshots
from tests.clusters import cluster, compute_workers, digest, history, left_over, noisy, quick, solver, wait_for


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return noisy(tmp_path_factory.mktemp("data") / "noisy.zarr", rows=2000, chunk_rows=350)


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_any_number_of_workers_gives_the_local_model(data, alone, workers):
    with cluster(workers) as client:
        model = solver(client=client).fit(data)
        assert digest(model) == digest(alone)
        assert history(model) == history(alone)
        assert left_over(client) == ([], {(0, 0)})


@pytest.mark.parametrize(
    ("criterion", "exact", "examples"), [("gradient", False, 400), ("autoactive", False, 250), ("active", True, 40)]
)
def test_selection_gives_the_local_model(data, criterion, exact, examples):
    X, y = data.as_dask()
    with dask.config.set({"dasksvm.exact-selection": exact}):
        model = solver(selection=criterion, max_examples=examples)
        expected = clone(model).fit(data)
        assert expected.history_[-1]["seen"] == examples
        with cluster() as client:
            for given in [(data,)] if exact else [(data,), (X, y)]:
                fitted = clone(model).set_params(client=client).fit(*given)
                assert len(given) == 2 or digest(fitted) == digest(expected)
                assert history(fitted) == history(expected)
            assert left_over(client) == ([], {(0, 0)})


def test_converged_run_with_checking_is_the_same(data):
    settings = {"epochs": "converged", "tol": 1e-2, "C": 0.02}
    expected = solver(**settings).fit(data)
    with cluster() as client:
        assert digest(solver(client=client, **settings).fit(data)) == digest(expected)


@pytest.mark.parametrize("shape", ["ovr", "ovo"])
def test_several_classes_give_the_local_model(tmp_path, alone, shape):
    rows = np.random.default_rng(0).normal(size=(700, 10)).astype(np.float32)
    names = np.array(["far", "left", "near", "right"])[2 * (rows[:, 0] > 0) + (np.abs(rows[:, 1]) > 0.7)]
    data = Dataset.create(tmp_path / "four", rows, names, chunk_rows=180, random_state=0)
    expected = solver(decision_function_shape=shape, cache_size=0.5).fit(data)
    with cluster() as client:
        for given in ((data,), data.as_dask()):
            model = solver(decision_function_shape=shape, cache_size=0.5, client=client).fit(*given)
            assert history(model) == history(expected)
            assert len(given) == 2 or digest(model) == digest(expected)
        assert np.array_equal(model.predict(data).compute(), expected.predict(data.as_dask()[0].compute()))
    # In whatever order of axes its arrays came, of two classes, as in `alone`, or of more: a precision is compiled once.
    compiled = [of.args[2].types for of in steps.process_batch.nopython_signatures]
    assert len(compiled) == len({rows.dtype for rows, *_ in compiled}) > 0


def test_filter_and_small_cache_do_not_matter_to_agreement(data):
    settings = {"cache_size": 2, "C": 50.0, "second_order": True}
    expected = solver(**settings).fit(data)
    with cluster() as client:
        assert digest(solver(client=client, **settings).fit(data)) == digest(expected)


def test_one_chunk_and_chunks_smaller_than_a_batch(tmp_path):
    for name, chunk_rows in (("one", 5000), ("small", 20)):
        data = noisy(tmp_path / name, rows=600, chunk_rows=chunk_rows)
        expected = solver().fit(data)
        with cluster(3) as client:
            assert digest(solver(client=client).fit(data)) == digest(expected)


def test_dask_arrays_with_empty_chunks(data, alone):
    X, y = data.as_dask()
    X, y = X.rechunk((750, -1)), y.rechunk(750)
    X = da.concatenate([X[:0], X[:1000], X[1000:1000], X[1000:]])
    y = da.concatenate([y[:0], y[:1000], y[1000:1000], y[1000:]])
    expected = solver().fit(X, y)
    with cluster() as client:
        model = solver().fit(X, y)  # the current client
        assert digest(model) == digest(expected)
        persisted = client.persist(X)
        assert digest(solver(client=client).fit(persisted, y)) == digest(expected)
        del persisted
        weight = np.where(np.arange(len(y)) % 2, 1.0, 0.5)
        weighted = solver(client=client).fit(X, y, sample_weight=weight)
    assert digest(weighted) == digest(solver().fit(X, y, sample_weight=weight))
    assert digest(weighted) != digest(expected)


def test_a_chunk_of_a_dask_array_that_cannot_be_read_for_a_while(data, tmp_path):
    X, y = data.as_dask()
    reads = tmp_path / "reads"

    def read(block, block_info=None):
        if block_info and block_info[0]["chunk-location"][0] == 2:
            with reads.open("a") as file:
                file.write("x")
            if 2 <= reads.stat().st_size <= 4:
                raise OSError("the disk is away")
        return block

    broken = X.map_blocks(read, dtype=X.dtype, meta=X._meta)
    with quick(), cluster(1) as client:
        expected = digest(solver(client=client).fit(X, y))
        assert digest(solver(client=client).fit(broken, y)) == expected
    assert reads.stat().st_size > 4


def test_weights_classes_and_scaling_of_a_data_set(tmp_path):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(800, 5)) * 10.0 ** np.arange(5)
    y = X[:, 0] + X[:, 1] / 10 > 0
    weight = rng.uniform(0.1, 2.0, 800)
    data = Dataset.create(tmp_path / "scaled", X, y, weight, scale="standard", shuffle=False, chunk_rows=100)
    settings = {"class_weight": "balanced", "dtype": "float64", "epochs": "converged", "tol": 1e-6}
    with cluster() as client:
        model = solver(client=client, **settings).fit(data)
    assert digest(model) == digest(solver(**settings).fit(data))
    # A model asked about raw rows answers as one trained on scaled rows by hand.
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    by_hand = solver(**settings).fit(scaled, y, sample_weight=weight)
    assert by_hand.model_.kernel.gamma == pytest.approx(model.model_.kernel.gamma)
    assert np.allclose(by_hand.decision_function(scaled), model.decision_function(X), atol=1e-4)


def test_partial_fit_goes_on_where_a_cluster_ended(data, alone):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(500, 30)).astype(np.float32)
    y = np.where(X[:, 0] > 0, "above", "below")
    with cluster() as client:
        model = solver(client=client).fit(data)
        model.partial_fit(da.from_array(X, chunks=(200, 30)), y)
    expected = solver().fit(data).partial_fit(da.from_array(X, chunks=(200, 30)), y)
    assert digest(model) == digest(expected)


def test_two_runs_side_by_side(data, alone):
    with cluster() as client:
        models = [solver(client=client), solver(client=client, C=1.0)]
        threads = [threading.Thread(target=model.fit, args=(data,)) for model in models]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert digest(models[0]) == digest(alone)
        assert digest(models[1]) == digest(solver(C=1.0).fit(data))
        assert left_over(client) == ([], {(0, 0)})


def test_worker_that_joins_late_takes_part(data, alone):
    seen = set()
    with local_cluster(1, processes=False) as made, Client(made) as client:

        def grow(progress, seconds):
            if progress.seen > 500 and len(made.workers) == 2:
                made.scale(3)
            seen.update(client.scheduler_info(n_workers=-1)["workers"])
            return False

        run = train(data, solver(), client=client, callbacks=[grow])
        assert digest(run.estimator) == digest(alone)
    assert run.timings.repeats == 0


def test_run_without_workers_waits_and_says_so(data, alone, caplog, monkeypatch):
    monkeypatch.setattr("dasksvm.runtime.driver.TICK", 0.005)
    with quick(), local_cluster(1, processes=False) as made, Client(made) as client:
        timers = []

        def restore():
            wait_for(lambda: "there are no compute workers left" in caplog.text)
            made.scale(2)

        def shrink(progress, seconds):
            if not timers:
                made.scale(1)
                wait_for(lambda: not compute_workers(client))
                timers.append(threading.Thread(target=restore))
                timers[0].start()
            return False

        run = train(data, solver(), client=client, callbacks=[shrink])
        timers[0].join()
    assert "there are no compute workers left" in caplog.text
    assert digest(run.estimator) == digest(alone)


def test_cluster_without_resources_and_a_single_worker(data, alone):
    for workers in (1, 3):
        with (
            dask.config.set({"distributed.worker.profile.enabled": False}),
            LocalCluster(workers, threads_per_worker=2, processes=False, dashboard_address=":0") as made,
            Client(made) as client,
        ):
            assert digest(solver(client=client).fit(data)) == digest(alone)


def test_profiler_is_warned_of_where_it_can_end_a_worker(data):
    with (
        LocalCluster(1, processes=False, dashboard_address=":0") as made,
        Client(made) as client,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        solver(client=client, max_examples=100).fit(data)
    warned = any("profiler" in str(warning.message) for warning in caught)
    assert warned == (sys.version_info[:2] == (3, 11))


def test_workers_are_known_while_the_client_asks_for_itself(monkeypatch):
    """Every two seconds it asks the scheduler who it is, without its workers."""
    with cluster() as client:
        sync = client.sync

        def overtaken(asked):
            def ask(*arguments, **options):
                answer = asked(*arguments, **options)
                sync(client._update_scheduler_info)
                return answer

            return ask

        monkeypatch.setattr(client, "sync", overtaken(sync))
        monkeypatch.setattr("dasksvm.runtime.cluster.ask_scheduler", overtaken(ask_scheduler))
        assert len(workers_of(client)) == 3


def test_address_as_client(data, alone):
    with cluster() as client:
        model = solver(client=client.scheduler.address).fit(data)
        assert digest(model) == digest(alone)
        assert clone(model).client == client.scheduler.address


@pytest.mark.parametrize("address", ["tls://127.0.0.1:1", "tcp://127.0.0.1:1"])
def test_a_scheduler_that_is_not_reached_leaves_no_client(address):
    """What is left would be closed by the garbage collector, which hangs if that is while another client is being closed."""

    def alive():
        loops = {thread for thread in threading.enumerate() if thread.name == "IO loop"}
        clients = {client.id for client in gc.get_objects() if isinstance(client, Client) and client.status != "closed"}
        return loops, clients

    before = alive()
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "200ms"}),
        pytest.raises(ConnectionError, match="could not reach"),
        use_client(address),
    ):
        pass
    assert alive() == before


def test_what_is_missing_is_said_before_the_run(data):
    def only(**resources):
        spec = {"cls": Worker, "options": {"resources": resources, "nthreads": 1}}
        scheduler = {"cls": Scheduler, "options": {"dashboard_address": ":0", "protocol": "inproc://"}}
        return SpecCluster(workers={0: spec} if resources else {}, scheduler=scheduler)

    cases = [({}, "no workers"), ({"compute": 1}, "'coordinator'"), ({"coordinator": 1}, "'compute'")]
    for resources, message in cases:
        with (
            quick(**{"dasksvm.worker-timeout": "1s"}),
            only(**resources) as made,
            Client(made) as client,
            pytest.raises(RuntimeError, match=message),
        ):
            solver(client=client).fit(data)


def test_interrupted_run_leaves_the_cluster_clean(data, alone):
    def interrupt(progress, seconds):
        raise KeyboardInterrupt

    with cluster() as client:
        model = solver(client=client)
        with pytest.raises(KeyboardInterrupt):
            train(data, model, callbacks=[interrupt])
        assert left_over(client) == ([], {(0, 0)})
        assert digest(model.fit(data)) == digest(alone)


def test_callbacks_and_budgets_reach_the_cluster(data, tmp_path, monkeypatch):
    monkeypatch.setattr("dasksvm.runtime.driver.TICK", 0.005)
    long = noisy(tmp_path / "long.zarr", rows=12_000)
    with cluster() as client:
        run = train(long, solver(), client=client, callbacks=[lambda progress, seconds: progress.seen >= 500])
        assert 500 <= run.history[-1]["seen"] < 12_000
        assert run.model.coefficients.shape[1] > 0
        budget = solver(client=client, max_examples=700, verbose=1).fit(data)
        assert budget.history_[-1]["seen"] == 700


def test_coordinator_that_is_lost_begins_again(data, alone, monkeypatch, caplog):
    """The call that fails is made up; the run that replaces it is real. Real losses are in test_failures."""
    told, undisturbed = [], []
    train(data, solver(), callbacks=[lambda progress, seconds: undisturbed.append(progress.seen)])
    advance = Coordinator.advance
    calls = []

    def failing(self, turn):
        calls.append(self.address.run)
        report = advance(self, replace(turn, seconds=0.05))
        if len(calls) == 2:
            raise OSError("gone")
        return report

    monkeypatch.setattr(Coordinator, "advance", failing)
    with cluster() as client:
        run = train(data, solver(), client=client, callbacks=[lambda progress, seconds: told.append(progress.seen)])
        assert digest(run.estimator) == digest(alone)
        assert history(run.estimator) == history(alone)
        assert left_over(client) == ([], {(0, 0)})
    assert told == undisturbed
    assert "starts another one" in caplog.text


def test_a_coordinator_that_catches_up_keeps_no_history_of_what_comes(data, tmp_path, monkeypatch):
    """Lost after its snapshot, it makes steps that were told; interrupted then, a run has told them once all the same."""
    monkeypatch.setattr("dasksvm.runtime.driver.TICK", 0.005)
    watched = {name: HeldOut(data, every=100) for name in ("undisturbed", "interrupted", "resumed")}
    undisturbed = train(data, solver(), callbacks=[watched["undisturbed"]])
    advance, step, lost = Coordinator.advance, Coordinator._step, []

    def one_a_turn(self, deadline):
        try:
            return step(self, deadline)
        finally:
            time.sleep(0.006)

    def failing(self, turn):
        if not lost and self.learner.applied >= 24 and self._snapshots._number:
            lost.append(1)
            raise OSError("gone")
        if lost and self._snapshots._number:
            raise ArithmeticError
        return advance(self, turn)

    def due(self, learner, seconds, *, stop=False):
        return self._number == 0 and learner.applied >= 4 and not learner.stopped

    with quick(), cluster(1) as client:
        with monkeypatch.context() as patched:
            patched.setattr(Snapshots, "due", due)
            patched.setattr(Coordinator, "advance", failing)
            # Otherwise the run could be over before the new coordinator has caught up and may write its snapshot.
            patched.setattr(Coordinator, "_step", one_a_turn)
            with pytest.raises(ArithmeticError):
                train(data, solver(), client=client, checkpoint=tmp_path, callbacks=[watched["interrupted"]])
        run = train(data, solver(), client=client, checkpoint=tmp_path, resume=True, callbacks=[watched["resumed"]])
    assert lost
    assert history(run.estimator) == history(undisturbed.estimator)
    assert digest(run.estimator) == digest(undisturbed.estimator)
    seen = [[entry["seen"] for entry in watched[name].entries] for name in ("undisturbed", "resumed")]
    assert seen[0] == seen[1]


def test_calls_that_are_delivered_twice_are_taken_once(data, alone, tmp_path, monkeypatch):
    """After an error of the connection Dask sends a call to an actor again, which may have come the first time."""
    twice = []

    def delivered(method):
        def call(self, *given):
            first = method(self, *given)
            applied = self.learner.applied
            assert method(self, *given) is first
            assert self.learner.applied == applied
            twice.append(method.__name__)
            return first

        return call

    for name in ("begin", "advance", "conclude"):
        monkeypatch.setattr(Coordinator, name, delivered(getattr(Coordinator, name)))
    with cluster() as client:
        run = train(data, solver(), client=client, checkpoint=tmp_path)
    assert set(twice) == {"begin", "advance", "conclude"}
    assert digest(run.estimator) == digest(alone)
    assert history(run.estimator) == history(alone)


def test_a_coordinator_that_computes_for_long_is_not_lost(data, alone, monkeypatch, caplog):
    advance, slept = Coordinator.advance, []

    def slow(self, turn):
        if not slept:
            slept.append(time.sleep(1.0))
        return advance(self, turn)

    monkeypatch.setattr(Coordinator, "advance", slow)
    with cluster() as client, dask.config.set({"dasksvm.answer-timeout": 0.2}):
        assert digest(solver(client=client).fit(data)) == digest(alone)
    assert "starts another one" not in caplog.text


def test_coordinator_that_is_always_lost_ends_the_run(data, monkeypatch):
    def failing(self, turn):
        raise OSError("gone")

    monkeypatch.setattr(Coordinator, "advance", failing)
    with cluster() as client, pytest.raises(CoordinatorLost, match="gone"):
        solver(client=client).fit(data)


def test_error_in_a_chunk_names_it(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "RETRIES", (0.001, 0.001))
    data = noisy(tmp_path / "torn", shuffle=False)
    chunk = next(
        path for path in (tmp_path / "torn" / "X" / "c").rglob("*") if path.is_file() and path.parent.name == "3"
    )
    chunk.write_bytes(chunk.read_bytes()[:50])
    with quick(), cluster() as client, pytest.raises(OSError, match=r"torn: chunk 3 of X \(rows 2100 to 2799\)"):
        solver(client=client, C=1.0).fit(data)


def test_a_run_that_failed_leaves_nothing_though_its_driver_is_gone(tmp_path, monkeypatch):
    """Large results stay on the workers until they are near, and of a failed run none ever is."""

    async def unheard(self):
        pass

    monkeypatch.setattr(coordinator, "TASK_BYTES", 1)
    monkeypatch.setattr(stored, "RETRIES", (0.001, 0.001))
    monkeypatch.setattr(Coordinator, "close", unheard)
    data = noisy(tmp_path / "torn", shuffle=False)
    chunk = tmp_path / "torn" / "X" / "c" / "3" / "0"
    chunk.write_bytes(chunk.read_bytes()[:50])
    gc.disable()
    try:
        with quick(), cluster() as client:
            with pytest.raises(OSError, match="torn: chunk 3"):
                solver(client=client).fit(data)
            assert left_over(client) == ([], {(0, 0)})
    finally:
        gc.enable()


def test_batches_share_tasks_and_the_time_is_accounted_for(data):
    with cluster() as client:
        run = train(data, solver(), client=client)
    timings = run.timings
    assert 0 < timings.tasks <= len(run.history) / 2
    assert timings.received > 0
    assert min(timings.waiting, timings.taking, timings.pulling, timings.reading, timings.tiling) > 0
    assert timings.waiting + timings.taking <= timings.seconds
    alone = train(data, solver()).timings
    assert alone.tasks == alone.received == 0
    assert min(alone.taking, alone.reading, alone.tiling) > 0
    assert alone.waiting + alone.taking <= alone.seconds
    assert "% of the time for batches" in alone.summary()


def test_large_batches_stay_where_they_are_until_they_are_near(data, alone, monkeypatch):
    monkeypatch.setattr(coordinator, "TASK_BYTES", 1)
    with cluster() as client:
        run = train(data, solver(), client=client)
        assert digest(run.estimator) == digest(alone)
        assert left_over(client) == ([], {(0, 0)})
    assert run.timings.tasks > len(run.history) / 2


def test_numpy_input_stays_here(data, alone):
    ids = np.arange(len(data))
    with cluster() as client:
        model = solver(client=client).fit(data.rows(ids), data.labels(ids))
        assert client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.transition_log)) == 0
    assert model.score(data) > 0.9


def test_prediction_graph_has_the_model_once(data, alone):
    X, _ = data.as_dask()
    small, large = (alone.predict(X.rechunk((rows, -1))) for rows in (1000, 100))
    models = [
        [key for key, task in dict(lazy.dask).items() if "KernelModel" in repr(type(getattr(task, "value", task)))]
        for lazy in (small, large)
    ]
    assert [len(found) for found in models] == [1, 1]
    expected = alone.predict(data.rows(np.arange(len(data))))
    with cluster() as client:
        # Two predictions of one model are two arrays of the graph.
        half, whole = client.gather(client.compute([alone.predict(X[:1000]), large]))
        assert np.array_equal(half, expected[:1000])
        assert np.array_equal(whole, expected)


def leave_garbage_that_takes_long():
    """What numba leaves in a worker that has compiled, in extreme."""

    class Slow:
        def __del__(self):
            time.sleep(60)

    slow = Slow()
    slow.itself = slow
    gc.disable()


@pytest.mark.cluster
def test_workers_end_at_once_when_the_cluster_is_closed(caplog):
    nannies = logging.getLogger("distributed.nanny")
    # As the command line starts them: workers that are forked end without a last garbage collection.
    started = {"distributed.worker.multiprocessing-method": "spawn"}
    with dask.config.set(started), local_cluster(1) as made, Client(made) as client:
        client.run(leave_garbage_that_takes_long)
        nannies.addHandler(caplog.handler)
    nannies.removeHandler(caplog.handler)
    assert "killing" not in caplog.text
