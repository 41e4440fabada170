"""Runs that lose their coordinator, their scheduler or their disk, in processes of their own: the model of an undisturbed run."""

import json
import os
import random
import resource
import signal
import threading
import time
from contextlib import contextmanager, nullcontext

import dask.config
import pytest
from distributed import Client

from dasksvm import SMOSVC, LaSVC, train
from dasksvm.runtime import SchedulerLost, driver, workers_of
from dasksvm.runtime.run_hooks import RunHooks, current_hooks
from dasksvm.training.snapshots import snapshots_in
from tests.clusters import (
    cluster,
    compute_workers,
    coordinator_worker,
    digest,
    history,
    left_over,
    noisy,
    quick,
    sabotage,
    send,
    solver,
)

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True)
def brisk(monkeypatch):
    monkeypatch.setattr(driver, "TICK", 0.05)
    # Nobody waits until a coordinator that is lost has closed itself.
    monkeypatch.setattr(driver, "CLOSE_TIMEOUT", 300.0)


@pytest.fixture
def begun(monkeypatch):
    """How many results the learner of each coordinator had taken when it began."""
    seen, begin = [], driver._StepReporter.begin

    def spying(self, found):
        seen.append(found.applied)
        begin(self, found)

    monkeypatch.setattr(driver._StepReporter, "begin", spying)
    return seen


@contextmanager
def listening():
    """Hear the warnings of a run. Those of Python get lost at times, as other threads here restore their filters."""

    class Listener(RunHooks):
        def warn(self, text):
            texts.append(text)

    texts = []
    token = current_hooks.set(Listener())
    try:
        yield texts
    finally:
        current_hooks.reset(token)


def once(condition, act):
    """A callback that acts the first time that a condition holds."""
    done = []

    def watch(progress, seconds):
        if not done and condition(progress):
            done.append(act())
        return False

    watch.done = done
    return watch


@pytest.mark.parametrize(
    ("phase", "settings"),
    [
        ("any", {}),
        ("online", {}),
        ("finishing", {"epochs": 2}),
        ("checking", {"C": 1e-5}),
        ("online", {"engine": "blocks"}),
        ("finishing", {"engine": "blocks", "epochs": 2}),
        ("surveying", {"engine": "blocks", "epochs": "converged"}),
    ],
)
def test_coordinator_killed_goes_on_from_its_snapshot(client, data, tmp_path, begun, phase, settings):
    estimator = solver(**settings)
    whole = train(data, estimator)
    begun.clear()
    kill = once(
        lambda progress: (
            phase == "any" or (progress.phase == phase and progress.seen > 4000 and snapshots_in(tmp_path))
        ),
        lambda: send(client, coordinator_worker(client), signal.SIGKILL),
    )
    # The first kill comes before the first snapshot.
    anew = pytest.warns(RuntimeWarning, match="No snapshot found") if phase == "any" else nullcontext()
    with anew:
        run = train(data, estimator, client=client, checkpoint=tmp_path, every=0.2, callbacks=[kill])
    assert kill.done
    assert digest(run.estimator) == digest(whole.estimator)
    assert history(run.estimator) == history(whole.estimator)
    assert len(begun) > 1
    assert phase == "any" or begun[-1] > 0


def test_coordinator_killed_and_its_newest_snapshot_is_corrupt(client, data, tmp_path, alone, begun):
    def strike():
        send(client, coordinator_worker(client), signal.SIGKILL)
        newest = max(tmp_path.glob("snapshot-*-??????"))
        newest.write_bytes(newest.read_bytes()[:-9])

    # Late enough for the snapshot before the newest to have some results.
    kill = once(lambda progress: progress.seen > 3000 and len(snapshots_in(tmp_path)) > 2, strike)
    with listening() as texts:
        run = train(data, solver(), client=client, checkpoint=tmp_path, every=0.1, callbacks=[kill])
    assert [text for text in texts if "cannot be used" in text]
    assert digest(run.estimator) == digest(alone)
    assert begun[-1] > 0


def test_coordinator_frozen_and_thawed(client, data, tmp_path, alone, begun, monkeypatch):
    """Its worker is restarted; without snapshots the run begins anew, and the model is the same."""
    monkeypatch.setattr("dasksvm.runtime.coordinator_client.SIGN_OF_LIFE", 1.0)
    monkeypatch.setattr(driver, "RESTART_TIMEOUT", 4.0)
    freeze = once(
        lambda progress: progress.seen > 3000, lambda: send(client, coordinator_worker(client), signal.SIGSTOP)
    )
    with dask.config.set({"dasksvm.answer-timeout": "3s"}):
        run = train(data, solver(), client=client, callbacks=[freeze])
    assert digest(run.estimator) == digest(alone)
    assert len(begun) == 2
    # Thawed in time, it is not lost at all.
    begun.clear()
    freeze = once(
        lambda progress: progress.seen > 3000,
        lambda: thaw(send(client, coordinator_worker(client), signal.SIGSTOP), 1.5),
    )
    run = train(data, solver(), client=client, callbacks=[freeze])
    freeze.done[0].join()
    assert digest(run.estimator) == digest(alone)
    assert len(begun) == 1


def thaw(pid, seconds):
    timer = threading.Timer(seconds, os.kill, (pid, signal.SIGCONT))
    timer.start()
    return timer


def test_disk_full_during_a_snapshot(client, data, tmp_path, alone, begun):
    """The kernel refuses the coordinator's process files of more than some kilobytes, for a while."""
    where = [coordinator_worker(client)]

    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    full = once(lambda progress: progress.seen > 500, lambda: client.run(limit, 4096, workers=where))
    space = once(lambda progress: texts, lambda: client.run(limit, resource.RLIM_INFINITY, workers=where))
    kill = once(lambda progress: space.done and snapshots_in(tmp_path), lambda: send(client, where[0], signal.SIGKILL))
    with listening() as texts:
        run = train(data, solver(), client=client, checkpoint=tmp_path, every=0.2, callbacks=[full, space, kill])
    assert full.done
    assert kill.done
    assert [text for text in texts if "could not be written" in text]
    assert digest(run.estimator) == digest(alone)
    assert begun[-1] > 0
    assert not list(tmp_path.glob("*.part"))


def test_more_kills_than_a_task_may_survive(data, alone):
    """With no failure allowed, the first kill makes the task a KilledWorker; it is asked for again under another name."""
    with quick(**{"distributed.scheduler.allowed-failures": 0}), cluster(2, processes=True) as client:
        for sequence, address in zip((3, 12), compute_workers(client), strict=True):
            client.run(sabotage, sequence, workers=[address])
        run = train(data, solver(), client=client)
        assert run.timings.repeats >= 2
        assert digest(run.estimator) == digest(alone)
        assert left_over(client) == ([], {(0, 0)})


def test_a_chunk_that_cannot_be_read_for_a_while(client, tmp_path, alone):
    torn = noisy(tmp_path / "torn.zarr", rows=8_000)
    chunk = tmp_path / "torn.zarr" / "X" / "c" / "9" / "0"
    content = chunk.read_bytes()
    chunk.write_bytes(content[:20])
    mend = once(lambda progress: True, lambda: threading.Timer(1.0, chunk.write_bytes, (content,)).start())
    run = train(torn, solver(), client=client, callbacks=[mend])
    assert digest(run.estimator) == digest(alone)


@pytest.mark.parametrize("solver_name", ["exact", "chooses", "in blocks"])
def test_compute_worker_killed_in_other_solvers(client, data, solver_name):
    estimators = {
        "exact": SMOSVC(C=3.0, random_state=1),
        "chooses": LaSVC(C=3.0, selection="autoactive", max_examples=400, random_state=1),
        "in blocks": LaSVC(C=3.0, engine="blocks", random_state=1),
    }
    whole = train(data, estimators[solver_name])
    client.run(sabotage, 2, workers=compute_workers(client)[:1])
    run = train(data, estimators[solver_name], client=client)
    assert digest(run.estimator) == digest(whole.estimator)
    assert history(run.estimator) == history(whole.estimator)


def test_scheduler_lost_and_the_run_resumed_on_another_cluster(start, data, tmp_path, alone, begun):
    first = start()
    with quick(**{"distributed.comm.timeouts.connect": "5s"}):
        client = Client(scheduler_file=str(first.file), direct_to_workers=True, set_as_default=False)
        client.wait_for_workers(2)
        kept = tmp_path / "kept"
        kill = once(lambda progress: progress.seen > 4000 and snapshots_in(kept), first.scheduler.kill)
        with pytest.raises(
            SchedulerLost, match=r"the connection to the scheduler .* is lost. The run can be resumed from"
        ):
            train(data, solver(), client=client, checkpoint=kept, every=0.2, callbacks=[kill])
        client.close()
        address = json.loads(start().file.read_text())["address"]
        run = train(data, solver(), client=address, checkpoint=kept, resume=True)
    assert begun[-1] > 0
    assert digest(run.estimator) == digest(alone)
    assert history(run.estimator) == history(alone)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_fifty_kills_at_random(tmp_path):
    """Any worker, the coordinator's too, all along the run: it is held up until as large a share of them has struck."""
    data = noisy(tmp_path / "data.zarr", rows=12_000)
    whole = train(data, solver(epochs=2))
    rng, kills, over = random.Random(0), [], threading.Event()

    def assassin(client):
        while len(kills) < 50 and not over.wait(rng.uniform(0.3, 3.0)):
            try:
                workers = sorted(workers_of(client))
                kills.append(send(client, rng.choice(workers), signal.SIGKILL))
            except Exception:  # a worker that has just gone, or none at all
                continue

    with quick(), cluster(3, processes=True) as client:
        thread = threading.Thread(target=assassin, args=(client,))
        thread.start()

        def held(progress, seconds):
            while len(kills) < 50 * progress.seen / 24_000 and thread.is_alive():
                time.sleep(0.02)
            return False

        try:
            run = train(
                data, solver(epochs=2), client=client, checkpoint=tmp_path / "kept", every=0.5, callbacks=[held]
            )
        finally:
            over.set()
            thread.join()
        assert len(kills) >= 50
        assert digest(run.estimator) == digest(whole.estimator)
        assert history(run.estimator) == history(whole.estimator)
